package alloc

import "cmp"

// Cause says why a share does not fit on a GPU, or a request on a node. Causes are
// in the order in which they are checked, so a later one is a nearer miss.
type Cause uint8

// The causes.
const (
	CauseNone       Cause = iota
	CauseCount            // the node has fewer GPUs than are asked for
	CauseNamed            // the GPU is not the one named, or one to avoid
	CauseModel            // its model is not allowed
	CauseClass            // no selector lets it
	CauseProfile          // it has no such MIG profile, or is in MIG mode
	CauseCapacity         // it is too small even when empty
	CauseNoSwap           // the host has no memory for swap shares of it, or less for one of them
	CauseContext          // the limit leaves nothing beside one process's context
	CauseKept             // a swap share would keep all of its memory on the GPU
	CauseNoNIC            // no adapter is near enough to it
	CauseHost             // the node's processors or memory are too few even when idle
	CauseFault            // it is not healthy
	CauseFence            // what is given of it contradicts itself
	CauseAside            // it is set aside, see Inventory.SetAside
	CauseBusy             // a whole GPU is asked for and this one has tenants
	CauseForm             // its tenants share it in another way
	CauseUser             // its tenants are another user's, and it serves one user at a time
	CauseClients          // the driver's server there takes no more programs
	CauseSlots            // it takes no more tenants
	CauseMemory           // it has too little memory left
	CauseSwapFull         // the host has too little memory left for swap shares of it
	CauseCores            // it has too few cores left to guarantee
	CausePlacement        // it has no room for the MIG profile
	CauseNIC              // no adapter near enough to it is free
	CauseNear             // the GPUs that fit are not near enough to each other
	CauseTogether         // too few GPUs fit at the same time
	CauseTries            // not every way to place the claims of a pod was tried
	CauseHostCPU          // the node has too few processors free
	CauseHostMemory       // the node has too little memory free
	causes
)

// never reports whether waiting cannot help.
func (c Cause) never() bool { return c <= CauseHost }

// impossible says why a request never fits on such a GPU, even an empty one.
func impossible(r *Request, g *GPU) Cause {
	switch {
	case r.Models != "" && !r.Models.means(g.Model), r.AvoidModels.means(g.Model):
		return CauseModel
	case !r.Classes.Has(g.Class):
		return CauseClass
	case (r.Profile != "") != (len(g.Profiles) > 0), r.Profile != "" && g.profile(r.Profile) < 0:
		return CauseProfile
	case r.Swap:
		return cmp.Or(r.neverSwaps(g, r.Memory.Of(g.Capacity)), faultOf(g))
	case r.Profile == "" && !r.Whole && r.Memory.Of(g.Capacity) > g.Capacity:
		return CauseCapacity
	case r.SwapMemory > min(g.SwapMemory, g.MostSwapMemory):
		return CauseNoSwap
	case r.Profile == "" && !r.Whole && r.Memory.Of(g.Capacity) <= g.ContextBytes:
		return CauseContext
	}
	return faultOf(g)
}

func faultOf(g *GPU) Cause {
	if g.Fault != "" {
		return CauseFault
	}
	return CauseNone
}

// check says why one share does not fit on a GPU now. shares is how many of the
// request's shares the GPU would take.
func (r *Request) check(g *GPU, n *need, shares int) Cause {
	switch {
	case n.cause != CauseNone:
		return n.cause
	case g.Fence != "":
		return CauseFence
	case g.aside:
		return CauseAside
	case r.differs(g):
		return CauseForm
	case r.User != "" && g.User != "" && g.User != r.User:
		return CauseUser
	case g.MostClients > 0 && g.Clients >= g.MostClients:
		return CauseClients
	}
	return r.room(g, n, shares)
}

// room says why a GPU that may serve has too little left.
func (r *Request) room(g *GPU, n *need, shares int) Cause {
	switch {
	case r.Profile != "":
		if !n.mix.Model().Fits(g.Instances, g.blocked(n.mix.Model()), n.profile) {
			return CausePlacement
		}
	case r.Whole:
		if g.Tenants > 0 || g.Granted > 0 || g.Cores > 0 {
			return CauseBusy
		}
	case g.Slots > 0 && g.Tenants+shares > g.Slots:
		return CauseSlots
	case r.lacksMemory(g, n.limit, shares):
		return CauseMemory
	case r.SwapMemory > g.FreeSwapMemory()/uint64(shares):
		return CauseSwapFull
	case !r.OvercommitCores && r.coresOf(g)*shares > g.FreeCores():
		return CauseCores
	}
	return CauseNone
}

// coresOf is what a share of a GPU guarantees, in percent.
func (r *Request) coresOf(g *GPU) int {
	switch {
	case r.Whole:
		return 100
	case r.Cores == 0 && !r.ZeroCores && r.Profile == "":
		return g.DefaultCores
	}
	return r.Cores
}

// differs reports whether tenants share a GPU in another way than the request asks for.
func (r *Request) differs(g *GPU) bool { return r.Form != "" && g.Form != "" && g.Form != r.Form }

// hostCause says why a request does not fit on a node's processors and memory.
func (r *Request) hostCause(free *entry, n *Node) Cause {
	switch {
	case free.absent, r.Count > len(n.GPUs) && (!r.Same || len(n.GPUs) == 0):
		return CauseCount
	case r.CPU > n.CPU || r.HostMemory > n.Memory:
		return CauseHost
	case r.CPU > free.cpu:
		return CauseHostCPU
	case r.HostMemory > free.memory:
		return CauseHostMemory
	}
	return CauseNone
}
