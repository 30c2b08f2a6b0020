package alloc

// Cause is why a share does not fit on a GPU, or a request on a node. Causes
// are in the order in which they are looked for: a later one is a nearer miss.
type Cause uint8

// The causes.
const (
	CauseNone       Cause = iota
	CauseCount            // the node has fewer GPUs than are asked for
	CauseNamed            // the GPU is not the one named, or one to avoid
	CauseModel            // its model is not allowed
	CauseProfile          // it has no such MIG profile, or is in MIG mode
	CauseCapacity         // it is too small even when empty
	CauseContext          // the limit leaves nothing beside one process's context
	CauseHost             // the node's processors or memory are too few even when idle
	CauseFault            // it is not healthy
	CauseBusy             // a whole GPU is asked for and this one has tenants
	CauseMemory           // it has too little memory left
	CauseCores            // it has too few cores left to guarantee
	CauseSlots            // it has no room for the MIG profile
	CauseNIC              // no adapter is free under its switch
	CauseNear             // the GPUs that fit are not near enough to each other
	CauseTogether         // too few GPUs fit at the same time
	CauseHostCPU          // the node has too few processors free
	CauseHostMemory       // the node has too little memory free
	causes
)

// never reports whether waiting does not help.
func (c Cause) never() bool { return c <= CauseHost }

// impossible is why a request never fits on a GPU of this sort.
func impossible(r *Request, g *GPU) Cause {
	switch {
	case r.Models != "" && !r.Models.Has(g.Model), r.AvoidModels.Has(g.Model):
		return CauseModel
	case (r.Profile != "") != (len(g.Profiles) > 0), r.Profile != "" && g.slots(r.Profile) == 0:
		return CauseProfile
	case r.Profile == "" && !r.Whole && r.Memory.Of(g.Capacity) > g.Capacity:
		return CauseCapacity
	case r.Profile == "" && !r.Whole && r.Memory.Of(g.Capacity) <= g.ContextBytes:
		return CauseContext
	case g.Fault != "":
		return CauseFault
	}
	return CauseNone
}

// check is why one share does not fit on a GPU now; shares is how many of the
// request's shares the GPU is to take.
func (r *Request) check(g *GPU, n *need, shares int) Cause {
	switch {
	case n.cause != CauseNone:
		return n.cause
	case r.Profile != "":
		if _, free := g.slot(r.Profile); !free {
			return CauseSlots
		}
	case r.Whole:
		if g.Tenants > 0 || g.Granted > 0 || g.Cores > 0 {
			return CauseBusy
		}
	case !r.Overcommit && (n.limit > g.FreeMemory() || n.limit > g.FreeMemory()/uint64(shares)):
		return CauseMemory
	case !r.OvercommitCores && r.Cores*shares > g.FreeCores():
		return CauseCores
	}
	return CauseNone
}

// hostCause is why a request does not fit on a node's processors and memory.
func (r *Request) hostCause(free *record, k *kind) Cause {
	switch {
	case r.Count > len(k.gpus) && (!r.Same || len(k.gpus) == 0):
		return CauseCount
	case r.CPU > k.hostCPU || r.HostMemory > k.hostMemory:
		return CauseHost
	case r.CPU > free.cpu:
		return CauseHostCPU
	case r.HostMemory > free.memory:
		return CauseHostMemory
	}
	return CauseNone
}

// slots is the mask of a profile's slots at start 0, or 0 for one unknown.
func (g *GPU) slots(profile string) uint32 {
	for i := range g.Profiles {
		if g.Profiles[i].Name == profile {
			return uint32(1)<<g.Profiles[i].Size - 1
		}
	}
	return 0
}

// slot chooses where an instance of a profile begins: where most places for
// other instances remain, and the highest of these, as small instances low
// down are in the way of more profiles.
func (g *GPU) slot(profile string) (start int, free bool) {
	most := -1
	for i := range g.Profiles {
		p := &g.Profiles[i]
		if p.Name != profile {
			continue
		}
		for _, at := range p.Starts {
			mask := g.slots(profile) << at
			if g.Slots&mask != 0 {
				continue
			}
			if left := g.places(g.Slots | mask); left > most || left == most && at > start {
				most, start = left, at
			}
		}
	}
	return start, most >= 0
}

// places counts the places that are left for any profile, weighted by size.
func (g *GPU) places(used uint32) int {
	sum := 0
	for i := range g.Profiles {
		p := &g.Profiles[i]
		for _, at := range p.Starts {
			if used&((uint32(1)<<p.Size-1)<<at) == 0 {
				sum += p.Size
			}
		}
	}
	return sum
}
