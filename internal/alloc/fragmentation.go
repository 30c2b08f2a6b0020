package alloc

import (
	"cmp"
	"math"
	"slices"
)

// target is one shape of the workload that measures fragmentation.
type target struct {
	shape *shape
	count int64
}

// targetPart is the part of arrivals, in percent, that the target workload covers
// with its most frequent shapes (published).
const targetPart = 95

// aim chooses the target workload among shapes and counts its arrivals.
func aim(shapes []*shape, total int64) (targets []target, wanted int64) {
	merged := map[Request]int{}
	for _, c := range shapes {
		// The measure ignores host memory.
		r := c.request
		r.HostMemory = 0
		at, known := merged[r]
		if !known {
			at = len(targets)
			merged[r] = at
			targets = append(targets, target{shape: c})
		}
		targets[at].count += c.arrivals
	}
	slices.SortStableFunc(targets, func(a, b target) int {
		x, y := &a.shape.request, &b.shape.request
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(y.CPU, x.CPU),
			cmp.Compare(y.Memory.Of(1000), x.Memory.Of(1000)), cmp.Compare(y.Count, x.Count), cmp.Compare(y.Models, x.Models))
	})
	for i := range targets {
		wanted += targets[i].count
		if wanted*100 >= total*targetPart {
			return targets[:i+1], wanted
		}
	}
	return targets, wanted
}

// fragments is the free capacity of a node, in thousandths of a GPU, that a shape
// cannot use: all of it when the shape does not fit or asks for no GPU, else the
// GPUs that have too little free.
func (s *state) fragments(c *shape, gpus int) int64 {
	o := &c.hosts[s.kind]
	all, small, fitting := 0, 0, 0
	for _, g := range s.gpus[:gpus] {
		all += g.free()
		if g.takes(o.memory, o.cores) {
			fitting++
		} else {
			small += g.free()
		}
	}
	if o.count == 0 || s.cpu < o.cpu || fitting < int(o.count) {
		return int64(all)
	}
	return int64(small)
}

// fragments is the expected fragmentation of a node over the target workload,
// times the number of its arrivals.
func (w *workload) fragments(s *state) (sum int64) {
	gpus := len(w.inv.kinds.all[s.kind].gpus)
	for i := range w.targets {
		sum += w.targets[i].count * s.fragments(w.targets[i].shape, gpus)
	}
	return sum
}

// measure is fragments with a cache.
func (w *workload) measure(s *state) int64 {
	if s.gpus[0].free() == 0 {
		return 0
	}
	m := w.fragment.slot(w, s)
	if m.version != w.version || m.state != *s {
		*m = remembered{state: *s, version: w.version, value: w.fragments(s)}
	}
	return m.value
}

// Target is a workload that measures fragmentation.
type Target struct{ targets []target }

// Target makes the workload of which these requests are examples: the shapes that
// cover most of them.
func (inv *Inventory) Target(requests []Request) Target {
	var shapes []*shape
	known := map[Request]*shape{}
	for _, r := range requests {
		if known[r] == nil {
			known[r] = inv.newShape(r)
			shapes = append(shapes, known[r])
		}
		known[r].arrivals++
	}
	targets, _ := aim(shapes, int64(len(requests)))
	return Target{targets}
}

// Fragmented is the part of the cluster's free capacity that a workload's shapes
// cannot use, in thousandths of a GPU: the mean over the shapes that ask for GPUs,
// weighted by their numbers.
func (inv *Inventory) Fragmented(t Target) int64 {
	sum, weight := int64(0), int64(0)
	for _, t := range t.targets {
		if t.shape.request.Count == 0 {
			continue
		}
		weight += t.count
		for j := range inv.entries {
			s := &inv.entries[j].state
			if s.gpus[0].free() > 0 {
				sum += t.count * s.fragments(t.shape, len(inv.kinds.all[s.kind].gpus))
			}
		}
	}
	return sum / max(weight, 1)
}

// Fragmentation prefers the place that makes the least capacity useless to the
// workload (FGD, published in "Beware of Fragmentation", USENIX ATC 2023), here
// in both the memory and the time of GPUs. With a Bucket, the score counts steps
// of so many thousandths of a GPU; without, it is the published sigmoid.
type Fragmentation struct{ Bucket int64 }

func (Fragmentation) bits() int { return 10 }
func (f Fragmentation) score(o *option) uint64 {
	w := o.inv.work
	grown := (w.measure(o.after) - w.measure(o.before)) * sigmoidUnit / max(w.wanted, 1)
	if f.Bucket > 0 {
		grown += sigmoidUnit << 14
		return uint64(max(0, grown/(f.Bucket*sigmoidUnit)))
	}
	at, _ := slices.BinarySearch(sigmoidSteps[:], -grown+1)
	return uint64(100 - at)
}

// sigmoidUnit is the resolution of the published score: its arguments are in
// 1/sigmoidUnit thousandths of a GPU.
const sigmoidUnit = 1024

// sigmoidSteps has the arguments at which int(100 sigmoid(x/1000)) becomes 1, 2, …
// 99.
var sigmoidSteps = func() (steps [99]int64) {
	for i := range steps {
		p := float64(i+1) / 100
		steps[i] = int64(math.Ceil(1000 * sigmoidUnit * math.Log(p/(1-p))))
	}
	return steps
}()
