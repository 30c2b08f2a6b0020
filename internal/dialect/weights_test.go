package dialect

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

func weighted(t *testing.T, driver, weight string) *resourcev1.ResourceClaimSpec {
	t.Helper()
	spec := &resourcev1.ResourceClaimSpec{}
	spec.Devices.Config = []resourcev1.DeviceClaimConfiguration{{}, {DeviceConfiguration: resourcev1.DeviceConfiguration{Opaque: &resourcev1.OpaqueDeviceConfiguration{
		Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(`{"apiVersion":"divvy.dev/v1alpha1","kind":"ShareConfig"` + weight + `}`)},
	}}}}
	return spec
}

func TestWeightsHaveAnAdministratorsLimit(t *testing.T) {
	translator := func(most string) (*Translator, error) {
		return NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\nmaxWeight: " + most + "\ndialects: {plain: {}}"))
	}
	for _, c := range []struct {
		most, driver, weight string
		refused              bool
	}{
		{"0", v1alpha1.Driver, `,"weight":1000`, false},
		{"10", v1alpha1.Driver, `,"weight":10`, false},
		{"10", v1alpha1.Driver, `,"weight":11`, true},
		{"10", v1alpha1.Driver, "", false},
		{"10", "nic.example.com", `,"weight":11`, false},
		{"10", v1alpha1.Driver, `,"weight":"x"`, false}, // refused elsewhere
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			with, err := translator(c.most)
			if err != nil {
				t.Fatal(err)
			}
			err = with.CheckWeights(weighted(t, c.driver, c.weight))
			if (err != nil) != c.refused || err != nil && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "weight 11 is more than the 10")) {
				t.Error(err)
			}
		})
	}
	for _, most := range []string{"-1", "1001", "x"} {
		if _, err := translator(most); !errors.Is(err, ErrConfig) {
			t.Errorf("maxWeight %s: %v", most, err)
		}
	}
}

// A share on a kernel of its own is refused in every form, a whole GPU is not.
func TestKernelsOfTheirOwn(t *testing.T) {
	kata, nvidia, secure, harmless := "kata-qemu", "nvidia", "secure", "gvisor"
	known := Inventory{Handlers: map[string]string{"secure": "runsc", "gvisor": "runc"}}
	for _, c := range []struct {
		class   *string
		limit   string
		refused bool
	}{{&kata, "divvy.dev/gpu-memory: 1Gi", true}, {&kata, "divvy.dev/gpu: 1", false}, {&nvidia, "divvy.dev/gpu-memory: 1Gi", false},
		{&secure, "divvy.dev/gpu-memory: 1Gi", true}, {&secure, "divvy.dev/gpu: 1", false}, {&harmless, "divvy.dev/gpu-memory: 1Gi", false}, {nil, "divvy.dev/gpu-memory: 1Gi", false}} {
		pod := limitsOf(t, c.limit)
		pod.Spec.RuntimeClassName = c.class
		translator := newTranslator(t, "{plain: {}}")
		_, err := translator.Translate(pod, known)
		if (err != nil) != c.refused || err != nil && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "kernel of their own")) {
			t.Errorf("%s: %v", c.limit, err)
		}
		for class, whole := range map[string]bool{v1alpha1.ClassShare: false, v1alpha1.ClassWhole: true} {
			own := &corev1.Pod{Spec: corev1.PodSpec{RuntimeClassName: c.class, Containers: []corev1.Container{{
				Name: "main", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}},
			}}}}
			spec := &resourcev1.ResourceClaimSpec{}
			spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class}}}
			err := Classes{}.CheckContainers(own, map[string]*resourcev1.ResourceClaimSpec{"gpu": spec}, translator.OwnKernel(own, known.Handlers))
			if want := (c.class == &kata || c.class == &secure) && !whole; (err != nil) != want {
				t.Errorf("a claim of class %s: %v", class, err)
			}
		}
	}
}
