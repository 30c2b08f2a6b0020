package controller

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// The capacities of GPUs, by their places in amounts.
const (
	memory = iota
	cores
	slots
	swapMemory
	capacities
)

var capacityNames = [capacities]resourcev1.QualifiedName{v1alpha1.CapacityMemory, v1alpha1.CapacityCores, v1alpha1.CapacitySlots, v1alpha1.CapacitySwapMemory}

// amounts are of each capacity. An explanation looks at every GPU of the cluster, so that a device's are numbers and no
// quantities in maps.
type amounts [capacities]int64

// device is one published device: a GPU, or one form of it. What an explanation looks at first stands first.
type device struct {
	free   amounts
	total  amounts
	has    [capacities]bool
	shared bool // several claims can have it
	sick   bool // a taint keeps away who does not tolerate it
	taken  int  // allocations
	rules  *[capacities]rule
	pool   string
	node   string
	number int // by which selectors remember what they say of it
	spec   *resourcev1.Device
	draws  []draw
}

// rule is what Kubernetes makes of an amount that is asked of a device.
type rule struct {
	valid       []int64 // if not empty, the least of these that is enough
	ranged      bool    // from least on in steps
	least, step int64
	most        int64 // that one claim takes
	unasked     int64 // what is taken where nothing is asked
}

// draw is what a device takes of a counter while it is allocated at all.
type draw struct {
	left   *int64
	amount int64
}

func newDevice(pool, node string, spec *resourcev1.Device) *device {
	d := &device{pool: pool, node: node, spec: spec, rules: new([capacities]rule), shared: spec.AllowMultipleAllocations != nil && *spec.AllowMultipleAllocations}
	for i, name := range capacityNames {
		capacity, ok := spec.Capacity[name]
		if !ok {
			continue
		}
		d.has[i], d.total[i] = true, capacity.Value.Value()
		d.free[i] = d.total[i]
		d.rules[i] = newRule(capacity.RequestPolicy, d.total[i])
	}
	for _, taint := range spec.Taints {
		d.sick = d.sick || keepsAway(taint)
	}
	return d
}

func newRule(policy *resourcev1.CapacityRequestPolicy, total int64) rule {
	r := rule{unasked: total, most: total}
	if policy == nil {
		return r
	}
	if policy.Default != nil {
		r.unasked = policy.Default.Value()
	}
	for i := range policy.ValidValues {
		r.valid = append(r.valid, policy.ValidValues[i].Value())
	}
	if within := policy.ValidRange; within != nil && within.Min != nil {
		r.ranged, r.least = true, within.Min.Value()
		if within.Step != nil {
			r.step = within.Step.Value()
		}
		if within.Max != nil {
			r.most = within.Max.Value()
		}
	}
	return r
}

// rounded is what is taken where an amount is asked.
func (r *rule) rounded(n int64) int64 {
	for _, valid := range r.valid {
		if valid >= n {
			return valid
		}
	}
	if !r.ranged {
		return n
	}
	n = max(n, r.least)
	if r.step > 0 {
		n = r.least + (n-r.least+r.step-1)/r.step*r.step
	}
	return n
}

// consumption is what an allocation takes of a device; ok is false where the device could never give it.
func (d *device) consumption(w *way) (consumed amounts, ok bool) {
	if w.strange {
		return consumed, false
	}
	for i := range capacities {
		if w.given[i] && (!d.has[i] || d.total[i] < w.asked[i]) {
			return consumed, false
		}
		if !d.shared || !d.has[i] {
			continue
		}
		consumed[i] = d.rules[i].unasked
		if w.given[i] {
			consumed[i] = d.rules[i].rounded(w.asked[i])
		}
		if consumed[i] > d.total[i] || consumed[i] > d.rules[i].most {
			return consumed, false
		}
	}
	return consumed, true
}

func (d *device) take(consumed amounts) {
	if d.taken++; d.taken == 1 {
		for _, draw := range d.draws {
			*draw.left -= draw.amount
		}
	}
	for i, n := range consumed {
		d.free[i] -= n
	}
}

func (d *device) giveBack(consumed amounts) {
	if d.taken--; d.taken == 0 {
		for _, draw := range d.draws {
			*draw.left += draw.amount
		}
	}
	for i, n := range consumed {
		d.free[i] += n
	}
}

// open reports whether the device can be allocated in this form: not if another form of its GPU is, nor once more if
// it is not shared or is wanted as a whole.
func (d *device) open(w *way) bool {
	if d.taken > 0 {
		return d.shared && !w.whole
	}
	for _, draw := range d.draws {
		if *draw.left < draw.amount {
			return false
		}
	}
	return true
}

// fits reports whether the device satisfies the way now.
func (d *device) fits(w *way) (consumed amounts, ok bool) {
	for i, n := range w.asked {
		if d.free[i] < n {
			return consumed, false // nothing is rounded down
		}
	}
	consumed, ok = d.consumption(w)
	if !ok || !d.open(w) {
		return consumed, false
	}
	for i, n := range consumed {
		if d.free[i] < n {
			return consumed, false
		}
	}
	return consumed, true
}

func keepsAway(taint resourcev1.DeviceTaint) bool {
	return taint.Effect == resourcev1.DeviceTaintEffectNoSchedule || taint.Effect == resourcev1.DeviceTaintEffectNoExecute
}

// healthy reports whether the device's taints let something be placed on it.
func (d *device) healthy(tolerations []resourcev1.DeviceToleration) bool {
	if !d.sick {
		return true
	}
	for _, taint := range d.spec.Taints {
		if !keepsAway(taint) {
			continue
		}
		tolerated := false
		for _, toleration := range tolerations {
			tolerated = tolerated || resourceclaim.ToleratesTaint(toleration, taint)
		}
		if !tolerated {
			return false
		}
	}
	return true
}

// attribute returns an attribute of the device by its full name, nil for none.
func (d *device) attribute(name resourcev1.FullyQualifiedName) *resourcev1.DeviceAttribute {
	if a, ok := d.spec.Attributes[resourcev1.QualifiedName(name)]; ok {
		return &a
	}
	if short, ours := strings.CutPrefix(string(name), v1alpha1.Driver+"/"); ours {
		if a, ok := d.spec.Attributes[resourcev1.QualifiedName(short)]; ok {
			return &a
		}
	}
	return nil
}
