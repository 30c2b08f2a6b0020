package dialect

import (
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Measure says what a resource counts of the claims that stand in its place, and in what unit. A dialect gives one to
// each resource that it takes away from pods, because a quota of that resource counts nothing any more.
type Measure struct {
	of   func(Use) uint64
	unit uint64
	// sized is true where a GPU of unknown size has no amount.
	sized bool
	// unkept is true of what is not counted, so that a quota of it can only be refused.
	unkept bool
}

// amount returns how many units of the resource a use is, rounded up, and whether the use holds what cannot be told.
func (m Measure) amount(u Use) (n uint64, unknown bool) {
	return (m.of(u) + m.unit - 1) / m.unit, u.Uncounted > 0 || m.sized && u.Unsized > 0
}

// write writes an amount as somebody would who asks for it.
func (m Measure) write(amount uint64) *resource.Quantity {
	if m.sized && m.unit == 1 {
		return resource.NewQuantity(int64(amount), resource.BinarySI)
	}
	return resource.NewQuantity(int64(amount), resource.DecimalSI)
}

var (
	// countGPUs counts a GPU once for every share of it.
	countGPUs = Measure{of: func(u Use) uint64 { return u.GPUs }, unit: 1}
	// countCards counts RDMA cards, of which each pair has one.
	countCards = Measure{of: func(u Use) uint64 { return u.Cards }, unit: 1}
	// countWhole counts GPUs of which all the memory is taken, and countShares the others.
	countWhole  = Measure{of: func(u Use) uint64 { return u.Whole }, unit: 1}
	countShares = Measure{of: func(u Use) uint64 { return u.GPUs - u.Whole }, unit: 1}
	// countPortions counts whole GPUs, to which shares add up by the larger of their parts of memory and time.
	countPortions = Measure{of: func(u Use) uint64 { return u.Portion }, unit: million}
	// countHundredths counts what countPortions does, in percent of a GPU.
	countHundredths = Measure{of: func(u Use) uint64 { return u.Portion }, unit: million / v1alpha1.MaxCores}
	// countCores counts percent of GPUs' time.
	countCores = Measure{of: func(u Use) uint64 { return u.Cores }, unit: 1}
	// countInstances stands for MIG instances of one profile, of which it counts too many.
	countInstances = Measure{of: func(u Use) uint64 { return u.Instances }, unit: 1, unkept: true}
	// countPercent counts percent of GPUs' memory.
	countPercent = Measure{of: func(u Use) uint64 { return u.Part }, unit: million / v1alpha1.MaxCores}
)

// countMemory counts memory in units of so many bytes.
func countMemory(unit uint64) Measure {
	return Measure{of: func(u Use) uint64 { return u.Memory }, unit: unit, sized: true}
}

// countReplicas counts shares, and for a whole GPU all the replicas that it has.
func countReplicas(replicas uint64) Measure {
	return Measure{of: func(u Use) uint64 { return u.GPUs + u.Whole*(replicas-1) }, unit: 1}
}
