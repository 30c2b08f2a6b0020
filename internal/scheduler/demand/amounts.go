package demand

import (
	"fmt"
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

const (
	mebibyte = 1 << 20
	// mostAmount is more than any GPU has of anything: amounts beyond it could overflow.
	mostAmount = 1 << 50
)

// amounts are what a request for shares asks of each GPU.
type amounts struct {
	memory uint64 // in bytes, rounded up as devices count it; 0 is all
	swap   uint64 // the limit of a swap share, in bytes and rounded up likewise; 0 for none
	cores  int
	// named tells that cores are asked, even 0.
	named bool
}

// asks reads the amounts of a request for shares.
func asks(capacity *resourcev1.CapacityRequirements) (a amounts, err error) {
	if capacity == nil {
		return a, nil
	}
	for _, name := range slices.Sorted(maps.Keys(capacity.Requests)) {
		quantity := capacity.Requests[name]
		n, fits := counted(quantity)
		switch name {
		case v1alpha1.CapacityMemory:
			if n < 1 || !fits {
				return a, fmt.Errorf("memory %s: give an amount that a GPU can have, such as 4Gi", quantity.String())
			}
			a.memory = (uint64(n) + mebibyte - 1) / mebibyte * mebibyte
		case v1alpha1.CapacitySwapMemory:
			if n < 1 || !fits {
				return a, fmt.Errorf("swapMemory %s: give an amount that the host of a GPU can have, such as 16Gi", quantity.String())
			}
			a.swap = (uint64(n) + mebibyte - 1) / mebibyte * mebibyte
		case v1alpha1.CapacityCores:
			if n < 0 || n > v1alpha1.MaxCores {
				return a, fmt.Errorf("cores %s: give 0 to %d percent of the GPU's time", quantity.String(), v1alpha1.MaxCores)
			}
			a.cores, a.named = int(n), true
		case v1alpha1.CapacitySlots:
			if n != 1 {
				return a, fmt.Errorf("slots %s: a share takes exactly 1", quantity.String())
			}
		default:
			return a, fmt.Errorf("a share has memory, cores, slots and swapMemory, and no %q", name)
		}
	}
	return a, nil
}

// counted is an amount as Kubernetes counts it, rounded up to a whole number; fits is false where it is beyond any GPU.
func counted(q resource.Quantity) (n int64, fits bool) {
	if near := q.AsApproximateFloat64(); !(near > -mostAmount && near < mostAmount) {
		return mostAmount, false
	}
	return q.Value(), true
}

// consumed is what Kubernetes counts of each capacity of a shared device for a request.
func consumed(asked *resourcev1.CapacityRequirements, device *resourcev1.Device) (map[resourcev1.QualifiedName]resource.Quantity, error) {
	all := make(map[resourcev1.QualifiedName]resource.Quantity, len(device.Capacity))
	if asked != nil {
		for name := range asked.Requests {
			if _, ok := device.Capacity[name]; !ok {
				return nil, fmt.Errorf("device %s has no %s", device.Name, name)
			}
		}
	}
	for name, capacity := range device.Capacity {
		var q resource.Quantity
		if n, ok := requested(asked, name); ok {
			q = rounded(n, capacity.RequestPolicy)
		} else {
			q = unasked(&capacity)
		}
		if q.Cmp(capacity.Value) > 0 || forbidden(q, capacity.RequestPolicy) {
			return nil, fmt.Errorf("device %s does not give %s of %s", device.Name, q.String(), name)
		}
		all[name] = q
	}
	return all, nil
}

func requested(asked *resourcev1.CapacityRequirements, name resourcev1.QualifiedName) (resource.Quantity, bool) {
	if asked == nil {
		return resource.Quantity{}, false
	}
	q, ok := asked.Requests[name]
	return q, ok
}

// unasked is what is counted where nothing is asked.
func unasked(c *resourcev1.DeviceCapacity) resource.Quantity {
	if c.RequestPolicy != nil && c.RequestPolicy.Default != nil {
		return c.RequestPolicy.Default.DeepCopy()
	}
	return c.Value.DeepCopy()
}

// rounded is what is counted where an amount is asked: the next that the policy allows.
func rounded(q resource.Quantity, policy *resourcev1.CapacityRequestPolicy) resource.Quantity {
	switch {
	case policy == nil:
		return q.DeepCopy()
	case policy.ValidRange != nil && policy.ValidRange.Min != nil:
		least, step := policy.ValidRange.Min, policy.ValidRange.Step
		if q.Cmp(*least) < 0 {
			return least.DeepCopy()
		}
		if step == nil || step.Value() <= 0 {
			return q.DeepCopy()
		}
		steps := (q.Value() - least.Value() + step.Value() - 1) / step.Value()
		return *resource.NewQuantity(least.Value()+steps*step.Value(), resource.BinarySI)
	}
	for _, valid := range policy.ValidValues {
		if q.Cmp(valid) <= 0 {
			return valid.DeepCopy()
		}
	}
	return q.DeepCopy()
}

// forbidden reports whether a policy does not allow an amount.
func forbidden(q resource.Quantity, policy *resourcev1.CapacityRequestPolicy) bool {
	switch {
	case policy == nil, policy.Default != nil && q.Cmp(*policy.Default) == 0:
		return false
	case policy.ValidRange != nil:
		within := policy.ValidRange
		if within.Max != nil && q.Cmp(*within.Max) > 0 {
			return true
		}
		return within.Step != nil && within.Min != nil && within.Step.Value() > 0 && (q.Value()-within.Min.Value())%within.Step.Value() != 0
	case len(policy.ValidValues) > 0:
		return !slices.ContainsFunc(policy.ValidValues, func(valid resource.Quantity) bool { return q.Cmp(valid) == 0 })
	}
	return false
}
