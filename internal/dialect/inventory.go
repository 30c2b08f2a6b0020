package dialect

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Inventory is what a translation needs to know of the cluster's GPUs.
type Inventory struct {
	// Sizes are the amounts of memory, in bytes, that GPUs of the cluster have for tenants. Order and repetition
	// mean nothing.
	Sizes []uint64
}

// InventoryOf reads the inventory off the shared GPUs that the driver published.
func InventoryOf(published []resourcev1.ResourceSlice) Inventory {
	var inventory Inventory
	for i := range published {
		if published[i].Spec.Driver != v1alpha1.Driver {
			continue
		}
		for _, device := range published[i].Spec.Devices {
			memory, ok := device.Capacity[v1alpha1.CapacityMemory]
			if !ok || device.AllowMultipleAllocations == nil || !*device.AllowMultipleAllocations {
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
