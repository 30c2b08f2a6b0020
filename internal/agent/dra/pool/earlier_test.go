package pool

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// earlier are the slices that agents of earlier versions published: each GPU as two devices that take one counter.
func earlier(t *testing.T, gpus []GPU) []*resourcev1.ResourceSlice {
	t.Helper()
	one := map[string]resourcev1.Counter{"gpu": {Value: *resource.NewQuantity(1, resource.DecimalSI)}}
	var counters []resourcev1.CounterSet
	var shared, wholes []resourcev1.Device
	for i := range gpus {
		set := Name(gpus[i].UUID, Whole)
		counters = append(counters, resourcev1.CounterSet{Name: set, Counters: one})
		of := gpus[i]
		of.Held = nil
		device := of.shared()
		delete(device.Attributes, v1alpha1.AttributeWhole)
		device.ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: set, Counters: one}}
		shared = append(shared, device)
		device = of.whole()
		device.Taints = of.Fault.taints()
		device.ConsumesCounters = shared[i].ConsumesCounters
		wholes = append([]resourcev1.Device{device}, wholes...)
	}
	var pool resourceslice.Pool
	for chunk := range slices.Chunk(counters, resourcev1.ResourceSliceMaxCounterSets) {
		pool.Slices = append(pool.Slices, resourceslice.Slice{SharedCounters: chunk})
	}
	pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: append(shared, wholes...)})
	return stored(t, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}})
}

// earlierClasses are the device classes of earlier versions.
func earlierClasses() classes {
	of := func(name, expression string) *resourcev1.DeviceClass {
		class := &resourcev1.DeviceClass{}
		class.Name = name
		class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
		return class
	}
	return classes{
		v1alpha1.ClassShare: of(v1alpha1.ClassShare, `device.driver == "divvy.dev" && device.attributes["divvy.dev"].form == "shared" && device.allowMultipleAllocations`),
		v1alpha1.ClassWhole: of(v1alpha1.ClassWhole, `device.driver == "divvy.dev" && device.attributes["divvy.dev"].form == "whole"`),
	}
}

// While a chart is replaced, the new classes meet slices of earlier agents, and while it is taken back, the earlier
// classes meet new slices. A whole GPU is then the device of its own that earlier agents know, or waits.
func TestClassesOfAnotherVersion(t *testing.T) {
	gpus := gpusOf(2, 16<<30)
	s := newScheduler(t, gpus)
	s.slices = earlier(t, gpus)
	if got := s.fits("whole", true, asks(v1alpha1.ClassWhole, 1)); !slices.Equal(got, []string{Name(uuidOf(1), Whole)}) {
		t.Errorf("of earlier slices the new class gives %v", got)
	}
	if got := s.fits("share", true, share("memory", "1Gi")); !slices.Equal(got, []string{Name(uuidOf(0), Shared)}) {
		t.Errorf("of earlier slices the new class gives %v", got)
	}
	s.fits("another", false, asks(v1alpha1.ClassWhole, 1))

	s = newScheduler(t, gpus)
	s.classes = earlierClasses()
	s.fits("whole", false, asks(v1alpha1.ClassWhole, 1))
	s.fits("share", true, share("memory", "1Gi"))
}

// An allocation of the device that earlier versions published for a whole GPU keeps everybody else away, also in the
// moment in which it has ended and the slice does not know it yet.
func TestWholeDevicesOfEarlierVersions(t *testing.T) {
	gpus := gpusOf(2, 16<<30)
	s := newScheduler(t, gpus)
	s.slices = earlier(t, gpus)
	s.fits("old", true, asks(v1alpha1.ClassWhole, 1))
	gpus[1].Held = ptr.To[uint64](0)
	s.slices = slicesOf(t, gpus)
	all := asks(v1alpha1.ClassWhole, 0)
	all.Devices.Requests[0].Exactly.AllocationMode = resourcev1.DeviceAllocationModeAll
	for range 2 {
		s.fits("all", false, all)
		s.fits("pair", false, asks(v1alpha1.ClassWhole, 2))
		s.fits("shares", false, asks(v1alpha1.ClassShare, 2, "memory", "1Gi"))
		if got := s.fits("one", true, asks(v1alpha1.ClassWhole, 1)); !slices.Equal(got, []string{Name(uuidOf(0), Shared)}) {
			t.Errorf("beside it %v is given out", got)
		}
		s.release("one")
		s.release("old")
	}
	gpus[1].Held = nil
	s.slices = slicesOf(t, gpus)
	s.fits("pair", true, asks(v1alpha1.ClassWhole, 2))
}

// The pods of a lost GPU are evicted by the taint of the device that they have.
func TestWholeDeviceOfALostGPU(t *testing.T) {
	gpus := gpusOf(1, 16<<30)
	gpus[0].Held, gpus[0].Fault = ptr.To[uint64](0), &Fault{Reason: "lost", Lost: true}
	device := slicesOf(t, gpus)[0].Spec.Devices[0]
	if device.Name != Name(uuidOf(0), Whole) || device.Taints[0].Effect != resourcev1.DeviceTaintEffectNoExecute || device.Taints[0].Value != "lost" {
		t.Errorf("%s has the taints %v", device.Name, device.Taints)
	}
}

// What a GPU has gained since it was given out as a whole looks free to nobody.
func TestGPUThatGrewUnderItsTenant(t *testing.T) {
	gpus := gpusOf(1, 16<<30)
	s := newScheduler(t, gpus)
	s.fits("whole", true, asks(v1alpha1.ClassWhole, 1))
	gpus[0].Memory += 1 << 30
	for _, held := range []*uint64{nil, ptr.To[uint64](16 << 30)} { // without it, the rest would be given out
		gpus[0].Held = held
		s.slices = slicesOf(t, gpus)
		s.fits("share", held == nil, share("memory", "1Gi"))
		s.release("share")
	}
	s.release("whole")
	s.fits("larger", false, share("memory", "17Gi"))
	gpus[0].Held = nil
	s.slices = slicesOf(t, gpus)
	s.fits("larger", true, share("memory", "17Gi"))
}

// world is a node that is upgraded and rolled back while claims come and go.
type world struct {
	*scheduler
	gpus      []GPU
	asked     map[string]resourcev1.ResourceClaimSpec
	installed classes
	old       bool
}

// publish makes the slices of the version that runs, as its agent does: it knows what it has prepared.
func (w *world) publish() {
	w.t.Helper()
	for i := range w.gpus {
		w.gpus[i].Held = nil
	}
	if w.old {
		w.slices, w.classes = earlier(w.t, w.gpus), earlierClasses()
		return
	}
	for _, allocation := range w.held {
		for _, r := range allocation.Devices.Results {
			uuid, form, _ := Parse(r.Device)
			for i := range w.gpus {
				if w.gpus[i].UUID == uuid && form == Whole {
					w.gpus[i].Held = ptr.To[uint64](0)
				}
			}
		}
	}
	w.slices, w.classes = slicesOf(w.t, w.gpus), w.installed
}

// check holds what is allocated against what the GPUs have.
func (w *world) check(step int) {
	w.t.Helper()
	type sum struct{ memory, cores, slots, wholes, all int64 }
	sums := map[string]*sum{}
	for name, allocation := range w.held {
		whole := w.asked[name].Devices.Requests[0].Exactly.DeviceClassName == v1alpha1.ClassWhole
		for _, r := range allocation.Devices.Results {
			uuid, _, ok := Parse(r.Device)
			if !ok {
				w.t.Fatalf("step %d: %s is given out", step, r.Device)
			}
			of := sums[uuid]
			if of == nil {
				of = &sum{}
				sums[uuid] = of
			}
			memory, cores, slots := r.ConsumedCapacity[v1alpha1.CapacityMemory], r.ConsumedCapacity[v1alpha1.CapacityCores], r.ConsumedCapacity[v1alpha1.CapacitySlots]
			of.memory, of.cores, of.slots, of.all = of.memory+memory.Value(), of.cores+cores.Value(), of.slots+slots.Value(), of.all+1
			if whole {
				of.wholes++
			}
		}
	}
	for uuid, of := range sums {
		if of.memory > 16<<30 || of.cores > v1alpha1.MaxCores || of.slots > v1alpha1.SlotsPerGPU || of.wholes > 0 && of.all > 1 {
			w.t.Fatalf("step %d: GPU %s is given out as %+v", step, uuid, *of)
		}
	}
}

// random is a claim of any form, of which many fit beside each other.
func (w *world) random(r *rand.Rand) resourcev1.ResourceClaimSpec {
	amounts := func() []string {
		return []string{"memory", fmt.Sprintf("%dMi", 1+r.Intn(12<<10)), "cores", fmt.Sprint(r.Intn(60))}
	}
	switch r.Intn(8) {
	case 0:
		return asks(v1alpha1.ClassWhole, int64(1+r.Intn(2)))
	case 1:
		all := asks(v1alpha1.ClassWhole, 0)
		all.Devices.Requests[0].Exactly.AllocationMode = resourcev1.DeviceAllocationModeAll
		return all
	case 2:
		return share("cores", fmt.Sprint(r.Intn(101)))
	case 3:
		return asks(v1alpha1.ClassShare, 2, amounts()...)
	case 4:
		return share("memory", "1Mi", "slots", fmt.Sprint(1+r.Intn(40)))
	}
	return share(amounts()...)
}

// TestNothingIsGivenOutTwice lets Kubernetes' allocator serve random claims while the node changes its version.
func TestNothingIsGivenOutTwice(t *testing.T) {
	for seed := range int64(6) {
		r := rand.New(rand.NewSource(seed))
		w := &world{scheduler: newScheduler(t, nil), gpus: gpusOf(4, 16<<30), asked: map[string]resourcev1.ResourceClaimSpec{}}
		w.installed = w.classes
		given := 0
		for i := range w.gpus {
			w.gpus[i].DefaultCores = r.Intn(2) * 5
		}
		for step := range 100 {
			if step%20 == 0 {
				w.old = r.Intn(2) == 0
			}
			if names := slices.Sorted(maps.Keys(w.held)); len(names) > 0 && r.Intn(3) == 0 {
				w.release(names[r.Intn(len(names))])
			}
			w.publish()
			name := fmt.Sprint(step)
			w.asked[name] = w.random(r)
			if w.take(name, w.asked[name]) != nil {
				given++
			}
			w.check(step)
		}
		if given < 20 {
			t.Errorf("seed %d: only %d claims were served", seed, given)
		}
	}
}
