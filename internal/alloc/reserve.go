package alloc

import (
	"errors"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
)

// ErrAssignment marks an assignment that does not fit the inventory.
var ErrAssignment = errors.New("assignment does not fit")

// holding is what an assignment holds of a node.
type holding struct {
	// given is the assignment as its owner knows it.
	given Assignment
	// counted tells how each share is counted in its GPU; nil is all of them in full.
	counted []counted
	// strict tells that it must fit, as whatever was reserved; adopted ones are counted in any case.
	strict bool
}

// counted is how a share is counted in its GPU: not where the GPU has gone, and without its MIG instance where another
// instance lies there.
type counted uint8

const (
	notCounted counted = iota
	amountsCounted
	instanceCounted
)

// Reserve takes what an assignment says. If the inventory has changed so that the
// assignment does not fit any more, it fails and takes nothing.
func (inv *Inventory) Reserve(a Assignment) error {
	at, ok := inv.at(&a)
	if !ok {
		return fmt.Errorf("%w: there is no node %q", ErrAssignment, a.Name)
	}
	h := holding{given: a, strict: true}
	if err := inv.take(at, &h); err != nil {
		return err
	}
	inv.held[a.Name] = append(inv.held[a.Name], h)
	inv.changed(at, a.group, 1)
	return nil
}

// at is the position of an assignment's node.
func (inv *Inventory) at(a *Assignment) (int, bool) {
	if a.Node >= 0 && a.Node < len(inv.nodes) && !inv.entries[a.Node].absent && inv.nodes[a.Node].Name == a.Name {
		return a.Node, true
	}
	at, ok := inv.named[a.Name]
	return at, ok
}

// take counts a holding in its node. A strict one that does not fit changes nothing.
func (inv *Inventory) take(at int, h *holding) error {
	n, a := &inv.nodes[at], &h.given
	if h.strict && (a.CPU > n.CPU-n.CPUUsed || a.Memory > n.Memory-min(n.MemoryUsed, n.Memory)) {
		return fmt.Errorf("%w: node %s has too little CPU or memory left", ErrAssignment, n.Name)
	}
	for i := range a.Shares {
		share := &a.Shares[i]
		gpu := n.find(share)
		if h.strict && n.misses(share, gpu) {
			inv.giveBack(at, h, i)
			return fmt.Errorf("%w: node %s has no such device", ErrAssignment, n.Name)
		}
		placed := inv.instance(at, gpu, share)
		why := n.misfit(share, gpu, placed)
		if h.strict && why != "" {
			inv.giveBack(at, h, i)
			return fmt.Errorf("%w: %s of node %s %s", ErrAssignment, share.Called(), n.Name, why)
		}
		// A card that is given too often has no room left, and its GPU is as good as before. So is that of a share that is suspended into a
		// host that has become smaller: it has to come back for the host to have room again.
		if gpu >= 0 && why != "" && why != noNIC && !share.Away {
			n.GPUs[gpu].Fence = why
		}
		n.give(share, gpu, placed)
		if !h.strict {
			h.counted[i] = amountsCounted
			if placed != 0 {
				h.counted[i] = instanceCounted
			}
		}
	}
	n.CPUUsed += a.CPU
	n.MemoryUsed += a.Memory
	return nil
}

// giveBack undoes the first shares that take has counted.
func (inv *Inventory) giveBack(at int, h *holding, shares int) {
	n := &inv.nodes[at]
	for i := range h.given.Shares[:shares] {
		share := &h.given.Shares[i]
		switch {
		case h.counted == nil:
			n.takeBack(share, n.find(share), share.Profile != "")
		case h.counted[i] != notCounted:
			n.takeBack(share, n.find(share), h.counted[i] == instanceCounted)
		}
	}
	clear(h.counted)
}

// misses reports whether a share names a GPU or an adapter that the node does not have. gpu is where its GPU was found, or -1.
func (n *Node) misses(s *Share, gpu int) bool {
	return gpu < 0 && s.UUID != "" || s.NIC != "" && n.nic(s.NIC) == nil
}

// find is the position of a share's GPU, or -1.
func (n *Node) find(s *Share) int {
	if s.GPU >= 0 && s.GPU < len(n.GPUs) && n.GPUs[s.GPU].UUID == s.UUID {
		return s.GPU
	}
	return slices.IndexFunc(n.GPUs, func(g GPU) bool { return g.UUID == s.UUID })
}

// noNIC is why a share does not fit whose adapter takes no more tenants.
const noNIC = "has no slot of its adapter left"

// Called names the share's GPU, or the adapter that it is of, in an error.
func (s *Share) Called() string {
	if s.UUID == "" {
		return "adapter " + s.NIC
	}
	return "GPU " + s.UUID
}

// nic is an adapter by its name, nil for none.
func (n *Node) nic(name string) *NIC {
	for i := range n.NICs {
		if n.NICs[i].Name == name && name != "" {
			return &n.NICs[i]
		}
	}
	return nil
}

// misfit says why a share does not fit on a GPU, which is -1 where there is none. placed is its MIG instance, 0 for one that
// does not fit.
func (n *Node) misfit(s *Share, gpu int, placed layouts.Layout) string {
	if gpu >= 0 {
		if why := n.misfitGPU(s, gpu, placed); why != "" {
			return why
		}
	}
	if nic := n.nic(s.NIC); nic != nil && nic.free() < 1 {
		return noNIC
	}
	return ""
}

func (n *Node) misfitGPU(s *Share, gpu int, placed layouts.Layout) string {
	g := &n.GPUs[gpu]
	switch {
	case s.Whole && (g.Tenants > 0 || g.Granted > 0 || g.Cores > 0):
		return "is given whole and has other tenants"
	case s.lacksMemory(g):
		return "has too little memory left"
	case s.SwapMemory > g.FreeSwapMemory():
		return "has too little memory of the host left for swap shares"
	case !s.OvercommitCores && s.Cores > g.FreeCores():
		return "has too few cores left"
	case s.Profile != "" && placed == 0:
		return "has no room for the MIG instance"
	case !s.Away && g.Slots > 0 && g.Tenants >= g.Slots:
		return "has no slot left"
	}
	return ""
}

// give adds a share to a GPU, which is -1 where there is none, and to its adapter.
func (n *Node) give(s *Share, gpu int, placed layouts.Layout) {
	if nic := n.nic(s.NIC); nic != nil {
		nic.Granted++
	}
	if gpu < 0 {
		return
	}
	g := &n.GPUs[gpu]
	g.SwapGranted += s.SwapMemory
	if s.Away {
		return
	}
	if s.Kept > 0 {
		g.Granted += s.Kept
		g.addTurn(s.Turn, s.Limit-s.Kept)
	} else {
		g.Granted += s.Limit
	}
	g.Cores += s.Cores
	if placed != 0 {
		g.Slices |= s.slices(g)
		g.Instances |= placed
	}
	g.Tenants++
}

// takeBack undoes give.
func (n *Node) takeBack(s *Share, gpu int, placed bool) {
	if nic := n.nic(s.NIC); nic != nil {
		nic.Granted--
	}
	if gpu < 0 {
		return
	}
	g := &n.GPUs[gpu]
	g.SwapGranted -= s.SwapMemory
	if s.Away {
		return
	}
	if s.Kept > 0 {
		g.Granted -= s.Kept
		g.dropTurn(s.Turn, s.Limit-s.Kept)
	} else {
		g.Granted -= s.Limit
	}
	g.Cores -= s.Cores
	if placed {
		g.Slices &^= s.slices(g)
		g.Instances &^= s.placed(g)
	}
	g.Tenants--
}

// Unreserve takes [Inventory.Reserve] of the same assignment back, as if it had never been, also when others were reserved
// in between. It reports whether the assignment was held.
func (inv *Inventory) Unreserve(a Assignment) bool {
	held := inv.held[a.Name]
	i := slices.IndexFunc(held, func(h holding) bool { return h.given.equal(&a) })
	if i < 0 {
		return false
	}
	h := held[i]
	if last := len(held) - 1; last == 0 {
		delete(inv.held, a.Name)
	} else {
		inv.held[a.Name] = slices.Delete(held, i, i+1)
	}
	at, ok := inv.at(&a)
	if !ok {
		return true
	}
	n := &inv.nodes[at]
	fenced := slices.ContainsFunc(n.GPUs, func(g GPU) bool { return g.Fence != "" })
	inv.giveBack(at, &h, len(a.Shares))
	n.CPUUsed -= a.CPU
	n.MemoryUsed -= a.Memory
	inv.changed(at, a.group, -1)
	if fenced {
		inv.again(at)
	}
	return true
}

// Release is Unreserve for what a tenant had that has ended. The policy learns from it that tenants leave.
func (inv *Inventory) Release(a Assignment) bool {
	was := inv.Unreserve(a)
	if was {
		inv.turnover.count(-1)
	}
	return was
}

// equal reports whether two assignments hold the same.
func (a *Assignment) equal(b *Assignment) bool {
	return a.CPU == b.CPU && a.Memory == b.Memory && a.group == b.group && slices.EqualFunc(a.Shares, b.Shares, func(s, t Share) bool {
		s.GPU, t.GPU = 0, 0 // the position changes with the node
		return s == t
	})
}

// Adopt takes what a tenant has already. Of the assignment the caller gives the node's name, for each share the GPU's UUID
// and amounts and the adapter or -1, and what the tenant has of the host; it is released by the same value. Nothing is refused: what contradicts
// other grants, the GPU's size or the node fences its GPU, which takes no more shares until the contradiction has ended. A
// GPU or node that is not there is adopted when it comes. Adopt reports whether a GPU is fenced by what was adopted.
func (inv *Inventory) Adopt(a Assignment) (fenced bool) {
	at, ok := inv.named[a.Name]
	if ok {
		inv.clear(at)
	}
	inv.held[a.Name] = append(inv.held[a.Name], holding{given: a})
	if !ok {
		return false
	}
	inv.settle(at)
	n := &inv.nodes[at]
	return slices.ContainsFunc(a.Shares, func(s Share) bool {
		gpu := n.find(&s)
		return gpu >= 0 && n.GPUs[gpu].Fence != ""
	})
}

// Fence keeps new shares from a GPU for a reason of the caller's, and lifts it with an empty reason. It outlives the node.
func (inv *Inventory) Fence(node, uuid, reason string) {
	if reason == "" {
		delete(inv.fences[node], uuid)
	} else {
		if inv.fences[node] == nil {
			if inv.fences == nil {
				inv.fences = map[string]map[string]string{}
			}
			inv.fences[node] = map[string]string{}
		}
		inv.fences[node][uuid] = reason
	}
	if at, ok := inv.named[node]; ok {
		inv.again(at)
	}
}

// again counts everything anew that is held of a node that is there.
func (inv *Inventory) again(at int) {
	inv.clear(at)
	inv.settle(at)
}

// clear subtracts from a node that is there what is held of it.
func (inv *Inventory) clear(at int) {
	n := &inv.nodes[at]
	held := inv.held[n.Name]
	for i := range held {
		inv.giveBack(at, &held[i], len(held[i].given.Shares))
		n.CPUUsed -= held[i].given.CPU
		n.MemoryUsed -= held[i].given.Memory
	}
}

// settle counts in a node, of which nothing of what is held is counted, all of it.
func (inv *Inventory) settle(at int) {
	n, r := &inv.nodes[at], &inv.entries[at]
	for i := range n.GPUs {
		n.GPUs[i].Fence = inv.fences[n.Name][n.GPUs[i].UUID]
	}
	r.held = [groups]int32{}
	held := inv.held[n.Name]
	for i := range held {
		h := &held[i]
		h.strict, h.counted = false, make([]counted, len(h.given.Shares))
		_ = inv.take(at, h) // only strict ones fail
		r.held[h.given.group]++
	}
	r.refresh(n)
	inv.touch(at)
}
