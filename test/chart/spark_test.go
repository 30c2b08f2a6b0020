package chart_test

import (
	"os"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// templateOfPage is the pod template for Spark's executors in docs/containers.md.
func templateOfPage(t *testing.T) *corev1.Pod {
	t.Helper()
	page, err := os.ReadFile("../../docs/containers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, begins := strings.Cut(string(page), "\n## A Spark executor on Kubernetes\n")
	_, text, indented := strings.Cut(section, "\n\n    ")
	text, _, ends := strings.Cut(text, "\n\n")
	if !begins || !indented || !ends {
		t.Fatal("the page has no template")
	}
	pod, ok := strict(t, []byte(strings.ReplaceAll(text, "\n    ", "\n"))).(*corev1.Pod)
	if !ok || len(pod.Spec.Containers) != 1 {
		t.Fatalf("the page's template is %+v", pod)
	}
	return pod
}

// What Spark makes of the page's template asks for the template's share, whether Spark is told of the GPU or not.
func TestSparkExecutor(t *testing.T) {
	translate := translator(t, "spark")
	share := map[resourcev1.QualifiedName]string{v1alpha1.CapacityMemory: "8Gi", v1alpha1.CapacityCores: "30"}
	for name, spark := range map[string]struct {
		told, bare bool
		want       map[resourcev1.QualifiedName]string
	}{
		"by the template":              {want: share},
		"told of the GPU":              {told: true, want: share},
		"with a profile of the stages": {told: true, bare: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := templateOfPage(t)
			resources := &pod.Spec.Containers[0].Resources
			if spark.bare {
				resources.Limits = corev1.ResourceList{}
			}
			resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("10Gi")}
			resources.Limits["memory"] = resource.MustParse("10Gi")
			if spark.told {
				resources.Limits[v1alpha1.ResourceGPU] = resource.MustParse("1")
			}
			made, err := translate.Translate(pod, dialect.Inventory{Sizes: []uint64{80 << 30}})
			if err != nil || len(made.Templates) != 1 || len(made.Patch) == 0 {
				t.Fatalf("it makes %d templates: %v", len(made.Templates), err)
			}
			spec := &made.Templates[0].Spec.Spec
			if err := (dialect.Classes{}).ValidateClaim(spec); err != nil {
				t.Error(err)
			}
			requests := spec.Devices.Requests
			if len(requests) != 1 || requests[0].Exactly == nil || requests[0].Exactly.Count > 1 {
				t.Fatalf("the claim has the requests %+v", requests)
			}
			if spark.want == nil {
				if requests[0].Exactly.Capacity != nil {
					t.Errorf("it asks for %+v, and not for a whole GPU", requests[0].Exactly.Capacity)
				}
				return
			}
			for capacity, want := range spark.want {
				if got := requests[0].Exactly.Capacity.Requests[capacity]; got.Cmp(resource.MustParse(want)) != 0 {
					t.Errorf("it asks for %s of %s, want %s", got.String(), capacity, want)
				}
			}
		})
	}
}
