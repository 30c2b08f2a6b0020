package alloc

import (
	"cmp"
	"slices"

	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
)

// Part is what one share of a request takes of a GPU of a model: memory in bytes, time in percent.
type Part struct {
	Model  string
	Memory uint64
	Cores  int
	// Capacity is the memory of the GPU that tenants can have.
	Capacity uint64
}

// Parts are what a share of a request takes of GPUs that could serve it if nobody else had them: one part for each model and
// size, in order.
func (inv *Inventory) Parts(r *Request) (parts []Part) {
	for k := range inv.kinds.all {
		kind := &inv.kinds.all[k]
		if kind.nodes == 0 {
			continue
		}
		for i := range kind.gpus {
			g := &kind.gpus[i]
			if cause := impossible(r, g); cause != CauseNone && cause != CauseFault {
				continue
			}
			p := g.Part(&Share{Limit: r.Memory.Of(g.Capacity), Cores: r.coresOf(g), Profile: r.Profile, Whole: r.Whole})
			if !slices.Contains(parts, p) {
				parts = append(parts, p)
			}
		}
	}
	slices.SortFunc(parts, func(a, b Part) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Capacity, b.Capacity), cmp.Compare(a.Memory, b.Memory))
	})
	return parts
}

// Part is what a share takes of the GPU. A MIG instance takes its part of the memory slices and of the compute slices.
func (g *GPU) Part(s *Share) Part {
	p := Part{Model: g.Model, Memory: s.Limit, Cores: s.Cores, Capacity: g.Capacity}
	switch {
	case s.Profile != "":
		memory, compute := g.instancePart(s.Profile)
		p.Memory, p.Cores = g.Capacity/1000*memory, int(compute/10)
	case s.Whole || s.Limit >= g.Capacity:
		p.Memory = g.Capacity
		if s.Whole {
			p.Cores = 100
		}
	}
	return p
}

// instancePart is what an instance of a profile takes of the GPU's memory slices and compute slices, in thousandths, rounded up.
// Of a profile that the GPU does not have it is everything.
func (g *GPU) instancePart(profile string) (memory, compute uint64) {
	at := g.profile(profile)
	if at < 0 {
		return 1000, 1000
	}
	var slicesOf, computeOf int
	for i := range g.Profiles {
		p := &g.Profiles[i]
		computeOf = max(computeOf, int(p.Takes[layouts.ComputeSlices]))
		for _, start := range p.Starts {
			slicesOf = max(slicesOf, start+p.Size)
		}
	}
	part := func(of, all int) uint64 {
		if all == 0 {
			return 1000
		}
		return uint64((of*1000 + all - 1) / all)
	}
	return part(g.Profiles[at].Size, slicesOf), part(int(g.Profiles[at].Takes[layouts.ComputeSlices]), computeOf)
}

// AddHostUse adds to what a node's processors, in thousandths, and its memory, in bytes, are used by others than those for whom
// something is reserved here; negative amounts are taken off. A node that is not there stays so.
func (inv *Inventory) AddHostUse(name string, cpu, memory int64) {
	at, known := inv.named[name]
	if !known {
		return
	}
	n := &inv.nodes[at]
	n.CPUUsed += cpu
	n.MemoryUsed += uint64(memory) // two's complement subtracts
	inv.entries[at].refresh(n)
	inv.touch(at)
}
