package pool

import (
	"fmt"
	"slices"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// The classes of these tests are a cluster's own: another driver's, one that looks at our driver alone, and one that
// looks at nothing.
const (
	otherDriver   = "gpu.example.com"
	classDriver   = "driver.example.com"
	classAnything = "anything.example.com"
)

// newMixed is a node with our GPUs and devices of another driver, which are given out whole.
func newMixed(t *testing.T, ours, theirs int) *scheduler {
	s := newScheduler(t, gpusOf(ours, 16<<30))
	for name, expression := range map[string]string{
		otherDriver: `device.driver == "gpu.example.com"`, classDriver: `device.driver == "divvy.dev"`, classAnything: `true`,
	} {
		s.classes[name] = &resourcev1.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}},
		}
	}
	other := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "00000-" + otherDriver},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: otherDriver, NodeName: ptr.To(node), Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		},
	}
	for i := range theirs {
		other.Spec.Devices = append(other.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("theirs-%d", i)})
	}
	s.slices = append(s.slices, other)
	return s
}

// A claim that names our devices and another driver's gets both or waits, and takes nothing while it waits.
func TestClaimOfTwoDrivers(t *testing.T) {
	s := newMixed(t, 1, 1)
	both := share("memory", "12Gi")
	theirs := asks(otherDriver, 1).Devices.Requests[0]
	theirs.Name = "theirs"
	both.Devices.Requests = append(both.Devices.Requests, theirs)
	if got := s.fits("both", true, both); !slices.Equal(got, []string{Name(uuidOf(0), Shared), "theirs-0"}) {
		t.Errorf("both are %v", got)
	}
	s.fits("again", false, both)
	s.fits("ours", true, share("memory", "4Gi"))
	s.release("both")
	s.fits("theirs", true, asks(otherDriver, 1))
	s.fits("again", false, both)
	s.fits("large", true, share("memory", "12Gi"))
	s.release("large")
	s.release("theirs")
	s.fits("again", true, both)
}

// Classes of the cluster's own give out just what there is, whatever a claim tolerates and in every mode.
func TestClassesByDriver(t *testing.T) {
	const ours, theirs = 3, 2
	for class, want := range map[string]int{v1alpha1.ClassShare: ours, v1alpha1.ClassWhole: ours, classDriver: ours, otherDriver: theirs, classAnything: ours + theirs} {
		for _, tolerant := range []bool{false, true} {
			ask := func(count int) resourcev1.ResourceClaimSpec {
				spec := asks(class, int64(count))
				if tolerant {
					spec.Devices.Requests[0].Exactly.Tolerations = []resourcev1.DeviceToleration{{Operator: resourcev1.DeviceTolerationOpExists}}
				}
				return spec
			}
			t.Run(fmt.Sprintf("%s tolerant %v", class, tolerant), func(t *testing.T) {
				s := newMixed(t, ours, theirs)
				s.fits("one more", false, ask(want+1))
				all := ask(0)
				all.Devices.Requests[0].Exactly.AllocationMode = resourcev1.DeviceAllocationModeAll
				for _, spec := range []resourcev1.ResourceClaimSpec{ask(want), all} {
					if got := s.fits("all", true, spec); len(got) != want {
						t.Errorf("of %d devices it got %v", want, got)
					}
					s.fits("none is left", false, ask(1))
					s.release("all")
				}
			})
		}
	}
}
