package dialect

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/queue"
)

// Inventory is what a translation needs to know of the cluster's GPUs.
type Inventory struct {
	// Sizes are the amounts of memory, in bytes, that GPUs of the cluster have for tenants. Order and repetition
	// mean nothing.
	Sizes []uint64
	// Handlers are those of the cluster's RuntimeClasses, by their names.
	Handlers map[string]string
	// Ranges are what LimitRanges of the pod's namespace say, in the order in which they are checked.
	Ranges []Range
	// Counting has what is counted for Ranges; it may be nil where there are none.
	Counting *Sizes
	// Queues are those of the cluster, nil where nobody serves any.
	Queues *queue.Tree
	// Name gives each claim that Divvy's scheduler is to make a name that no other has, see [v1alpha1.ClaimName].
	Name func() string
}

// mostMemory is more than any GPU has, in bytes.
const mostMemory = 1 << 40

// largest returns the size of the largest GPU, or [mostMemory] where none is known.
func (i Inventory) largest() uint64 {
	if len(i.Sizes) == 0 {
		return mostMemory
	}
	return slices.Max(i.Sizes)
}

// InventoryOf reads the inventory off the shared GPUs that the driver published. A GPU whose tenants are evicted is
// lost, or about to be reset: what is published of its memory may be what its tenants hold, and it takes no new ones.
func InventoryOf(published []resourcev1.ResourceSlice) Inventory {
	var inventory Inventory
	for i := range published {
		if published[i].Spec.Driver != v1alpha1.Driver {
			continue
		}
		for _, device := range published[i].Spec.Devices {
			memory, ok := device.Capacity[v1alpha1.CapacityMemory]
			if !ok || device.AllowMultipleAllocations == nil || !*device.AllowMultipleAllocations || lost(device.Taints) {
				continue
			}
			if n, ok := WholeNumber(memory.Value); ok && n > 0 {
				inventory.Sizes = append(inventory.Sizes, uint64(n))
			}
		}
	}
	inventory.Sizes = inventory.sizes()
	return inventory
}

// sizes returns the different sizes, the smallest first, because a request takes the smallest GPU that fits.
func (i Inventory) sizes() []uint64 {
	sorted := slices.Clone(i.Sizes)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	if len(sorted) > 0 && sorted[0] == 0 {
		sorted = sorted[1:]
	}
	return sorted
}

func lost(taints []resourcev1.DeviceTaint) bool {
	return slices.ContainsFunc(taints, func(t resourcev1.DeviceTaint) bool {
		return t.Key == v1alpha1.UnhealthyTaint && t.Effect == resourcev1.DeviceTaintEffectNoExecute
	})
}

// span is a range of sizes, both ends included.
type span struct{ least, most uint64 }

// loss is how much less the least of the sizes is than the most, as a part of the most.
func (s span) loss() float64 { return float64(s.most-s.least) / float64(s.most) }

// spans puts the sizes into at most so many ranges, the smallest first, so that the largest loss of any range is as
// small as it can be. As long as there are enough ranges, each holds one size.
func (i Inventory) spans(most int) []span {
	sizes := i.sizes()
	if len(sizes) <= most {
		return split(sizes, 0)
	}
	// A larger bound never needs more ranges, so the smallest that suffices is found by halving.
	enough, tooLittle := 1.0, 0.0
	for range 40 {
		bound := (enough + tooLittle) / 2
		if len(split(sizes, bound)) <= most {
			enough = bound
		} else {
			tooLittle = bound
		}
	}
	return split(sizes, enough)
}

// split puts sorted sizes into as few ranges as a bound on their loss allows.
func split(sizes []uint64, bound float64) []span {
	var all []span
	for _, size := range sizes {
		if n := len(all); n > 0 && (span{all[n-1].least, size}).loss() <= bound {
			all[n-1].most = size
		} else {
			all = append(all, span{size, size})
		}
	}
	return all
}
