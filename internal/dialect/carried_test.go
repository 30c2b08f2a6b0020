package dialect

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// many is a pod of n containers, each of which asks for another amount.
func many(n int) *corev1.Pod {
	pod := &corev1.Pod{}
	for i := range n {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name:      fmt.Sprint("c", i),
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{v1alpha1.ResourceMemory: resource.MustParse(fmt.Sprintf("%dGi", i+1))}},
		})
	}
	return pod
}

// carry translates a pod and applies the patch.
func carry(t *testing.T, pod *corev1.Pod) (*corev1.Pod, Translation, error) {
	t.Helper()
	made, err := newTranslator(t, "{plain: {}, kai: {}}").Translate(pod, Inventory{})
	if err != nil {
		t.Fatal(err)
	}
	err = made.Carry(pod)
	return apply(t, pod, made.Patch), made, err
}

func TestCarried(t *testing.T) {
	for name, annotations := range map[string]map[string]string{
		"no annotations":        nil,
		"others":                {"a": "b"},
		"only one that is ours": {"gpu-fraction-num-devices": "1"},
		"a forged one":          {v1alpha1.TemplatesAnnotation: "{"},
	} {
		pod := many(3)
		pod.Annotations = annotations
		if name == "only one that is ours" {
			pod = many(1)
			pod.Spec.Containers[0].Resources.Limits = nil
			pod.Annotations = map[string]string{"gpu-memory": "4096"}
		}
		patched, made, err := carry(t, pod)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Carried(patched)
		if err != nil || len(got) != len(made.Templates) {
			t.Fatalf("%s: %v, %v", name, got, err)
		}
		byName := make(map[string]any)
		for i := range made.Templates {
			byName[made.Templates[i].Name] = made.Templates[i]
		}
		for i := range got {
			if !reflect.DeepEqual(describeSpec(t, &got[i].Spec.Spec), describeSpec(t, &made.Templates[i].Spec.Spec)) && byName[got[i].Name] == nil || !Genuine(&got[i]) {
				t.Errorf("%s: carries %+v", name, got[i])
			}
		}
		if annotations["a"] != "" && patched.Annotations["a"] != "b" {
			t.Errorf("%s: another annotation is gone", name)
		}
	}
	if got, err := Carried(many(1)); got != nil || err != nil {
		t.Errorf("a pod that carries nothing: %v, %v", got, err)
	}
}

// A copy of a translated pod to which a container was added still carries what it carried.
func TestCarriedByACopy(t *testing.T) {
	patched, _, err := carry(t, many(1))
	if err != nil {
		t.Fatal(err)
	}
	more := many(2).Spec.Containers[1]
	patched.Spec.Containers = append(patched.Spec.Containers, more)
	again, _, err := carry(t, patched)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Carried(again); err != nil || len(got) != 2 {
		t.Errorf("%d templates, %v", len(got), err)
	}
}

func TestPodsMayNeedOnlySoMany(t *testing.T) {
	if _, _, err := carry(t, many(MostTemplates)); err != nil {
		t.Error(err)
	}
	if _, _, err := carry(t, many(MostTemplates+1)); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "17 different ways") {
		t.Errorf("one more: %v", err)
	}
}

func TestForgedAnnotationsAreNotCarried(t *testing.T) {
	pod, _, err := carry(t, many(1))
	if err != nil {
		t.Fatal(err)
	}
	text := pod.Annotations[v1alpha1.TemplatesAnnotation]
	for _, forged := range []string{
		"", "[]", "{", `{"a":1}`,
		strings.Replace(text, "1Gi", "2Gi", 1),
		strings.Replace(text, `"count":1`, `"count":1,"adminAccess":true`, 1),
		text + strings.Repeat(" ", longestCarried),
	} {
		pod.Annotations[v1alpha1.TemplatesAnnotation] = forged
		if got, err := Carried(pod); !errors.Is(err, ErrRefused) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.200s: %v, %v", forged, got, err)
		}
	}
	// What no claim of the pod names is not carried.
	pod.Annotations[v1alpha1.TemplatesAnnotation] = text
	pod.Spec.ResourceClaims = nil
	if got, err := Carried(pod); len(got) != 0 || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}
