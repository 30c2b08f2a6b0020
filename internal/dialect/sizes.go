package dialect

import (
	"iter"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Published is what counting and translating need to know of one resource slice.
type Published struct {
	Pool string
	// Inventory is what translations need.
	Inventory Inventory
	// Sizes are the different sizes of the slice's devices, in bytes, the smallest first.
	Sizes []uint64
	// Swaps is true where swap shares can have memory of the host.
	Swaps bool
	// sizes holds the size of each device by its name.
	sizes map[string]uint64
	// cores is the largest default of any device for shares that ask for no cores.
	cores uint64
}

// PublishedOf reads a slice. It holds nothing of another driver's.
func PublishedOf(slice *resourcev1.ResourceSlice) Published {
	p := Published{Pool: slice.Spec.Pool.Name, Inventory: InventoryOf([]resourcev1.ResourceSlice{*slice})}
	if slice.Spec.Driver != v1alpha1.Driver {
		return p
	}
	for i := range slice.Spec.Devices {
		device := &slice.Spec.Devices[i]
		memory, ok := device.Capacity[v1alpha1.CapacityMemory]
		if n, whole := WholeNumber(memory.Value); ok && whole && n > 0 {
			turn := turnOf(device)
			n += int64(turn)
			p.Swaps = p.Swaps || turn > 0
			if p.sizes == nil {
				p.sizes = make(map[string]uint64, len(slice.Spec.Devices))
			}
			p.sizes[device.Name] = uint64(n)
			if !isInstance(device.Name) {
				p.Sizes = append(p.Sizes, uint64(n))
			}
		}
		if policy := device.Capacity[v1alpha1.CapacityCores].RequestPolicy; policy != nil && policy.Default != nil {
			if n, whole := WholeNumber(*policy.Default); whole && n > 0 {
				p.cores = max(p.cores, uint64(min(n, v1alpha1.MaxCores)))
			}
		}
	}
	slices.Sort(p.Sizes)
	p.Sizes = slices.Compact(p.Sizes)
	return p
}

// turnOf is how much of a GPU's memory swap shares have turns in, which is as much as one of them can have. It is 0 for a GPU
// without any.
func turnOf(device *resourcev1.Device) uint64 {
	swap, ok := device.Capacity[v1alpha1.CapacitySwapMemory]
	if !ok || swap.RequestPolicy == nil || swap.RequestPolicy.ValidRange == nil || swap.RequestPolicy.ValidRange.Max == nil {
		return 0
	}
	n, whole := WholeNumber(*swap.RequestPolicy.ValidRange.Max)
	if !whole || n < 0 {
		return 0
	}
	return uint64(min(n, mostMemory))
}

// Forms says which devices of ours a device class selects.
type Forms struct{ Shared, Whole, Instances bool }

// FormsOf says of which sort a device of ours is. One without memory is no GPU for programs.
func FormsOf(device *resourcev1.Device) Forms {
	_, memory := device.Capacity[v1alpha1.CapacityMemory]
	switch {
	case !memory:
		return Forms{}
	case isInstance(device.Name):
		return Forms{Instances: true}
	case device.AllowMultipleAllocations != nil && *device.AllowMultipleAllocations:
		return Forms{Shared: true}
	}
	return Forms{Whole: true}
}

// And returns what either selects.
func (f Forms) And(o Forms) Forms {
	return Forms{f.Shared || o.Shared, f.Whole || o.Whole, f.Instances || o.Instances}
}

// Sizes is what counting needs to know of the cluster: how much memory each published GPU has, how many cores a share
// gets that asks for none, and which device classes select our devices. It does not change.
type Sizes struct {
	pools map[string][]map[string]uint64
	known []uint64 // every size once, the smallest first
	cores uint64
	by    map[string]Forms
}

// NewSizes gathers slices. Gone holds further sizes, of GPUs that are not published at the moment. Classes are those
// that are not Divvy's own.
func NewSizes(published iter.Seq[Published], gone []uint64, classes map[string]Forms) *Sizes {
	s := &Sizes{pools: make(map[string][]map[string]uint64), by: classes}
	seen := make(map[uint64]bool)
	for _, size := range gone {
		seen[size] = true
	}
	for p := range published {
		s.cores = max(s.cores, p.cores)
		if len(p.sizes) > 0 {
			s.pools[p.Pool] = append(s.pools[p.Pool], p.sizes)
		}
		for _, size := range p.Sizes {
			seen[size] = true
		}
	}
	s.known = sortedKeys(seen)
	return s
}

// SizesOf gathers slices of a cluster without device classes other than Divvy's.
func SizesOf(published []resourcev1.ResourceSlice) *Sizes {
	return NewSizes(func(yield func(Published) bool) {
		for i := range published {
			if !yield(PublishedOf(&published[i])) {
				return
			}
		}
	}, nil, nil)
}

// of returns the size of a device, or 0.
func (s *Sizes) of(pool, device string) uint64 {
	for _, sizes := range s.pools[pool] {
		if size := sizes[device]; size > 0 {
			return size
		}
	}
	return 0
}

// largest returns the largest size, or 0 where none is known.
func (s *Sizes) largest() uint64 {
	if len(s.known) == 0 {
		return 0
	}
	return s.known[len(s.known)-1]
}

// least returns the smallest size that has room for an amount, or 0.
func (s *Sizes) least(memory uint64) uint64 {
	if i, _ := slices.BinarySearch(s.known, memory); i < len(s.known) {
		return s.known[i]
	}
	return 0
}

// forms returns which devices of ours a class selects.
func (s *Sizes) forms(class string) Forms {
	forms := s.by[class]
	switch {
	case v1alpha1.SharesOf(class) != "":
		return Forms{Shared: true}
	case class == v1alpha1.ClassMIG:
		return Forms{Instances: true}
	case class == v1alpha1.ClassWhole, v1alpha1.IsWholeClass(class) && forms != Forms{}:
		return Forms{Whole: true}
	}
	return forms
}
