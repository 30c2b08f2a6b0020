package pool

import (
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Shares that ask for no cores take the node's, and what their agent reads is what was counted.
func TestDefaultCores(t *testing.T) {
	gpus := gpusOf(1, 16<<30)
	s := newScheduler(t, gpus)
	s.fits("before", true, share("memory", "1Gi"))
	gpus[0].DefaultCores = 30
	s.slices = slicesOf(t, gpus)
	for _, name := range []string{"a", "b"} {
		s.fits(name, true, share("memory", "1Gi"))
		if cores := s.held[name].Devices.Results[0].ConsumedCapacity[v1alpha1.CapacityCores]; cores.Value() != 30 {
			t.Errorf("%s took %s cores", name, cores.String())
		}
	}
	s.fits("c", true, share("memory", "1Gi", "cores", "11"))
	s.fits("d", false, share("memory", "1Gi"))
	s.fits("none", true, share("memory", "1Gi", "cores", "0"))
	s.release("a")
	s.fits("d", true, share("memory", "1Gi"))
	s.fits("whole", false, asks(v1alpha1.ClassWhole, 1))
}

// A whole GPU takes the default cores too, so it fits wherever nobody has anything.
func TestDefaultCoresOfWholeGPUs(t *testing.T) {
	gpus := gpusOf(1, 16<<30)
	gpus[0].DefaultCores = 100
	s := newScheduler(t, gpus)
	s.fits("whole", true, asks(v1alpha1.ClassWhole, 1))
	s.fits("share", false, share("memory", "1Mi", "cores", "0"))
}
