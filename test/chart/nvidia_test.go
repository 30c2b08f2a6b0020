package chart_test

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/chart/render"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestNVIDIAsClass looks whether the chart makes NVIDIA's device class where it was asked to and nobody else has it.
func TestNVIDIAsClass(t *testing.T) {
	named := func(name string, labels map[string]string) map[string][]runtime.Object {
		return map[string][]runtime.Object{"deviceclasses": {&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}}}
	}
	class := func(labels map[string]string) map[string][]runtime.Object { return named("gpu.nvidia.com", labels) }
	slice := func(driver string) map[string][]runtime.Object {
		node := "node-7"
		return map[string][]runtime.Object{"resourceslices": {&resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: resourcev1.ResourceSliceSpec{Driver: driver, NodeName: &node},
		}}}
	}
	for name, c := range map[string]struct {
		cluster map[string][]runtime.Object
		refused string // with nvidiaClass
	}{
		"no cluster":           {nil, ""},
		"an empty cluster":     {map[string][]runtime.Object{}, ""},
		"Divvy's own class":    {class(map[string]string{"app.kubernetes.io/name": "divvy"}), ""},
		"somebody else's":      {class(nil), "that is not Divvy's"},
		"NVIDIA's chart's":     {class(map[string]string{"app.kubernetes.io/name": "dra-driver-nvidia-gpu"}), "uninstall NVIDIA's DRA driver first"},
		"another's for MIG":    {named("mig.nvidia.com", nil), "a device class mig.nvidia.com that is not Divvy's"},
		"NVIDIA's driver runs": {slice("gpu.nvidia.com"), "serves GPUs of node node-7"},
		"Divvy's slices":       {slice(v1alpha1.Driver), ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, on := range []bool{true, false} {
				values := ""
				if on {
					values = "nvidiaClass: true"
				}
				documents, err := render.Chart(dir, render.Options{Namespace: namespace, Kubernetes: newest, Values: values, Cluster: c.cluster})
				if on && c.refused != "" {
					if err == nil || !strings.Contains(err.Error(), c.refused) {
						t.Errorf("%v, want %q", err, c.refused)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				found, instances := false, false
				for _, class := range find[*resourcev1.DeviceClass](t, documents) {
					instances = instances || class.Name == v1alpha1.ClassNVIDIAMIG
					if class.Name == "gpu.nvidia.com" {
						found = true
						if e := class.Spec.ExtendedResourceName; e == nil || *e != "nvidia.com/gpu" {
							t.Errorf("extended resource %v", e)
						}
					}
				}
				if found != on || instances != on {
					t.Errorf("asked for %t, and the classes are there: %t, %t", on, found, instances)
				}
			}
		})
	}
	if _, err := render.Chart(dir, render.Options{Namespace: namespace, Kubernetes: oldest, Values: "nvidiaClass: true"}); err == nil || !strings.Contains(err.Error(), "needs mode claims") {
		t.Errorf("in mode slots: %v", err)
	}
}
