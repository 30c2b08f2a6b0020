package pool

import (
	"fmt"
	"slices"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// opened asks for admin access to all GPUs of a node and takes nothing of them.
func opened(class string) resourcev1.ResourceClaimSpec {
	spec := asks(class, 0, "memory", "0", "cores", "0", "slots", "0")
	spec.Devices.Requests[0].Exactly.AllocationMode = resourcev1.DeviceAllocationModeAll
	spec.Devices.Requests[0].Exactly.AdminAccess = ptr.To(true)
	return spec
}

// A claim with admin access gets every GPU, whatever others have of it, and takes nothing from anybody.
func TestAdminAccess(t *testing.T) {
	for _, class := range []string{v1alpha1.ClassShare, v1alpha1.ClassWhole} {
		gpus := gpusOf(3, 16<<30)
		gpus[0].DefaultCores = 50
		s := newScheduler(t, gpus)
		s.fits("share", true, share("memory", "4Gi", "cores", "100"))
		s.fits("whole", true, asks(v1alpha1.ClassWhole, 1))
		for i := range v1alpha1.SlotsPerGPU {
			s.fits(fmt.Sprint(i), true, share("memory", "1Mi"))
		}
		first, again := s.fits("monitor", true, opened(class)), s.fits("another", true, opened(class))
		if len(first) != 3 || !slices.Equal(first, again) {
			t.Errorf("class %s: admin access is to %v, then to %v", class, first, again)
		}
		for _, r := range s.held["monitor"].Devices.Results {
			if !ptr.Deref(r.AdminAccess, false) {
				t.Errorf("class %s: %+v does not say so", class, r)
			}
			for name, quantity := range r.ConsumedCapacity {
				if !quantity.IsZero() {
					t.Errorf("class %s: it takes %s %s", class, quantity.String(), name)
				}
			}
		}
	}
}
