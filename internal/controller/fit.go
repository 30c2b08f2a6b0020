package controller

import (
	"reflect"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// need is one request of a claim, in one or several ways.
type need struct {
	claim *resourcev1.ResourceClaim
	name  string
	ways  []way
}

// way is what would satisfy a need.
type way struct {
	class       string
	selectors   []*selector
	whole       bool // a GPU that nobody else has
	all         bool
	count       int
	capacity    *resourcev1.CapacityRequirements
	asked       amounts
	given       [capacities]bool // which of them are asked
	strange     bool             // it asks for a capacity that no GPU has
	tolerations []resourcev1.DeviceToleration
}

func (w *way) ask(capacity *resourcev1.CapacityRequirements) {
	w.capacity = capacity
	if capacity == nil {
		return
	}
	for name, quantity := range capacity.Requests {
		at := slices.Index(capacityNames[:], name)
		if at < 0 {
			w.strange = true
			continue
		}
		w.asked[at], w.given[at] = quantity.Value(), true
	}
}

// needs returns what a claim asks of this driver. Another class counts too if it selects a device of this driver.
// Missing names a class of Divvy's that does not exist.
func (c *cluster) needs(claim *resourcev1.ResourceClaim) (all []need, missing string) {
	for i := range claim.Spec.Devices.Requests {
		r := &claim.Spec.Devices.Requests[i]
		n := need{claim: claim, name: r.Name}
		add := func(class string, mode resourcev1.DeviceAllocationMode, count int64, selectors []resourcev1.DeviceSelector, capacity *resourcev1.CapacityRequirements, tolerations []resourcev1.DeviceToleration) {
			w := way{
				class: class, whole: v1alpha1.IsWholeClass(class), all: mode == resourcev1.DeviceAllocationModeAll,
				count: int(max(count, 1)), tolerations: tolerations,
			}
			w.ask(capacity)
			object, found := c.classes[class]
			if !found {
				if ours(class) && missing == "" {
					missing = class
				}
				return
			}
			if !ours(class) && !c.serves(object) {
				return
			}
			w.selectors = append(c.selectorsOf(object.Spec.Selectors), c.selectorsOf(selectors)...)
			n.ways = append(n.ways, w)
		}
		if e := r.Exactly; e != nil && (e.AdminAccess == nil || !*e.AdminAccess) {
			add(e.DeviceClassName, e.AllocationMode, e.Count, e.Selectors, e.Capacity, e.Tolerations)
		}
		for _, s := range r.FirstAvailable {
			add(s.DeviceClassName, s.AllocationMode, s.Count, s.Selectors, s.Capacity, s.Tolerations)
		}
		// Another driver could satisfy this request too, so nothing certain can be said of it.
		if len(n.ways) > 0 && len(n.ways) >= len(r.FirstAvailable) {
			all = append(all, n)
		}
	}
	return all, missing
}

func ours(class string) bool {
	return dialect.Classes{}.Ours(class) || v1alpha1.IsNICClass(class)
}

// serves reports whether a class of somebody else's selects a device of this driver.
func (c *cluster) serves(class *resourcev1.DeviceClass) bool {
	if c.theirs[class.Name] {
		return false
	}
	all := c.selectorsOf(class.Spec.Selectors)
	for _, p := range c.byName() {
		if slices.ContainsFunc(p.devices, func(d *device) bool { return c.selectedBy(d, all) }) {
			return true
		}
	}
	c.theirs[class.Name] = true
	return false
}

func (c *cluster) selectorsOf(selectors []resourcev1.DeviceSelector) []*selector {
	var all []*selector
	for _, s := range selectors {
		if s.CEL != nil {
			all = append(all, c.selector(s.CEL.Expression))
		}
	}
	return all
}

// suits reports whether the device could ever satisfy the way, were it free.
func (c *cluster) suits(d *device, w *way) bool {
	_, large := d.consumption(w)
	return large && d.healthy(w.tolerations) && c.selectedBy(d, w.selectors)
}

// searchSteps bounds the searches of one explanation. A longer search counts as a success, so that no false reason is
// written.
const searchSteps = 200000

// search looks for devices of one node for all needs at once.
type search struct {
	cluster *cluster
	devices []*device // of the node
	chosen  map[*resourcev1.ResourceClaim][]choice
}

type choice struct {
	request string
	device  *device
}

// fit reports whether these devices satisfy all needs together.
func (c *cluster) fit(devices []*device, needs []need) bool {
	for i := range needs {
		if !c.fitsAlone(devices, &needs[i]) {
			return false
		}
	}
	if len(needs) == 1 && len(needs[0].claim.Spec.Devices.Constraints) == 0 {
		return true
	}
	s := &search{cluster: c, devices: devices, chosen: make(map[*resourcev1.ResourceClaim][]choice)}
	return s.satisfy(needs)
}

// fitsAlone reports whether there are enough devices for a need, whatever the constraints of its claim are. Most nodes
// are out of the question by that, without a search.
func (c *cluster) fitsAlone(devices []*device, n *need) bool {
	for i := range n.ways {
		w := &n.ways[i]
		fitting, suiting := 0, 0
		for _, d := range devices {
			c.looked++
			if _, ok := d.fits(w); ok && c.suits(d, w) {
				fitting++
			}
			if w.all && c.suits(d, w) {
				suiting++
			}
		}
		if !w.all && fitting >= w.count || w.all && suiting > 0 && fitting == suiting {
			return true
		}
	}
	return false
}

func (s *search) satisfy(needs []need) bool {
	if len(needs) == 0 {
		return true
	}
	for i := range needs[0].ways {
		w := &needs[0].ways[i]
		count := w.count
		if w.all {
			count = 0
			for _, d := range s.devices {
				if s.cluster.suits(d, w) {
					count++
				}
			}
			if count == 0 {
				continue
			}
		}
		if s.choose(needs, w, count, 0) {
			return true
		}
	}
	return false
}

// choose takes count more devices, from this place in the list on, for the first of the needs, and then satisfies the
// others.
func (s *search) choose(needs []need, w *way, count, from int) bool {
	if count == 0 {
		return s.satisfy(needs[1:])
	}
	claim := needs[0].claim
	for i := from; i < len(s.devices); i++ {
		if s.cluster.steps++; s.cluster.steps > searchSteps {
			return true
		}
		d := s.devices[i]
		consumed, ok := d.fits(w)
		if !ok || !s.cluster.suits(d, w) {
			continue
		}
		before := s.chosen[claim]
		s.chosen[claim] = append(before, choice{needs[0].name, d})
		d.take(consumed)
		done := s.constrained(claim) && s.choose(needs, w, count-1, i+1)
		d.giveBack(consumed)
		s.chosen[claim] = before
		if done {
			return true
		}
	}
	return false
}

// constrained reports whether what was chosen for a claim keeps its constraints so far.
func (s *search) constrained(claim *resourcev1.ResourceClaim) bool {
	for _, constraint := range claim.Spec.Devices.Constraints {
		var seen []*resourcev1.DeviceAttribute
		name := constraint.MatchAttribute
		if name == nil {
			name = constraint.DistinctAttribute
		}
		if name == nil {
			continue
		}
		for _, c := range s.chosen[claim] {
			if len(constraint.Requests) > 0 && !slices.Contains(constraint.Requests, c.request) {
				continue
			}
			value := c.device.attribute(*name)
			if value == nil {
				return false
			}
			same := slices.ContainsFunc(seen, func(other *resourcev1.DeviceAttribute) bool { return reflect.DeepEqual(value, other) })
			if constraint.MatchAttribute != nil && len(seen) > 0 && !same || constraint.DistinctAttribute != nil && same {
				return false
			}
			seen = append(seen, value)
		}
	}
	return true
}
