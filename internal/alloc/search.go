package alloc

import "errors"

// Search returns an assignment for a request. The error is a *Refusal when the
// request fits on no node, and [ErrRequest] when it contradicts itself. Nothing is
// taken until [Inventory.Reserve].
func Search(inv *Inventory, r Request) (Assignment, error) {
	c := inv.shapes[r]
	if c == nil {
		if err := r.Validate(); err != nil {
			return Assignment{}, err
		}
		c = inv.shape(r)
	}
	inv.decisions++
	if len(inv.nodes) == 0 {
		return Assignment{}, inv.refusal(c)
	}
	if !r.plain() || inv.policy.near() && r.Count > 1 {
		return inv.scan(c)
	}
	key := inv.find(c)
	if key == noKey {
		return Assignment{}, inv.refusal(c)
	}
	node := nodeOf(key)
	var chosen arrangement
	switch {
	case r.Count == 1:
		chosen.gpus[0] = c.index.gpu[node]
	case r.Count > 1:
		positions, _ := inv.tightest(c, node)
		for i := range r.Count {
			chosen.gpus[i] = inv.entries[node].gpu[positions[i]]
		}
	}
	for i := range r.Count {
		chosen.nics[i] = -1
	}
	return inv.assignment(c, key, &chosen), nil
}

// near reports whether the policy looks at the relations between GPUs.
func (p *Policy) near() bool {
	for _, t := range p.Terms {
		if _, ok := t.(Topology); ok {
			return true
		}
	}
	return false
}

// scan looks at every node. It serves requests for which no index is kept.
func (inv *Inventory) scan(c *shape) (Assignment, error) {
	key := uint64(noKey)
	var chosen arrangement
	for node := range inv.nodes {
		a, cause := inv.arrange(c, node)
		if cause != CauseNone {
			continue
		}
		if k := inv.keyOf(c, node, &a); k < key {
			key, chosen = k, a
		}
	}
	if key == noKey {
		return Assignment{}, inv.refusal(c)
	}
	return inv.assignment(c, key, &chosen), nil
}

// keyOf returns the key of an arrangement.
func (inv *Inventory) keyOf(c *shape, node int, a *arrangement) uint64 {
	if c.request.Profile != "" {
		return inv.instanceKey(c, node, a)
	}
	r := &inv.entries[node]
	o := inv.consider(c, node)
	o.gpu, o.spread = int(a.gpus[0]), a.spread
	for i := len(c.needs[r.state.kind]) - 1; i >= 0; i-- {
		need := &c.needs[r.state.kind][r.gpu[i]]
		memory, cores := uint16(0), uint16(0)
		for _, gpu := range a.gpus[:c.request.Count] {
			if gpu == r.gpu[i] {
				memory, cores = min(1000, memory+need.memory), min(1000, cores+need.cores)
			}
		}
		o.after.take(i, memory, cores)
	}
	return inv.policy.key(o)
}

func (inv *Inventory) assignment(c *shape, key uint64, chosen *arrangement) Assignment {
	node := nodeOf(key)
	r, n := &c.request, &inv.nodes[node]
	a := Assignment{
		Node: node, Name: n.Name, CPU: r.CPU, Memory: r.HostMemory,
		whole: r.Whole, overcommit: r.Overcommit, overcommitCores: r.OvercommitCores, group: c.group,
	}
	if r.Count > 0 {
		a.Shares = make([]Share, r.Count)
	}
	for i := range a.Shares {
		at := int(chosen.gpus[i])
		g := n.GPUs[at]
		share := &a.Shares[i]
		*share = Share{UUID: g.UUID, GPU: at, Limit: c.needs[inv.entries[node].state.kind][at].limit, Cores: r.Cores, NIC: int(chosen.nics[i])}
		if r.Whole {
			share.Cores = 100
		}
		if r.Profile != "" {
			choice, _ := inv.choose(c, node, at)
			share.Profile, share.Start = r.Profile, choice.Start
		}
	}
	return a
}

// Waits reports whether a request that was refused may fit later.
func Waits(err error) bool {
	var refusal *Refusal
	return errors.As(err, &refusal) && refusal.Reason == ReasonFull
}
