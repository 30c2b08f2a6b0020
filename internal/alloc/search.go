package alloc

import "errors"

// Search returns an assignment for a request. The error is a *Refusal when the
// request fits on no node, and [ErrRequest] when it contradicts itself. Nothing is
// taken until [Inventory.Reserve].
func Search(inv *Inventory, r Request) (Assignment, error) {
	c, err := inv.valid(r)
	if err != nil {
		return Assignment{}, err
	}
	if !inv.indexed(&c.request) {
		return inv.scan(c)
	}
	key := uint64(noKey)
	if inv.present > 0 {
		key = inv.find(c).tree[1]
	}
	if key == noKey {
		return Assignment{}, inv.refusal(c)
	}
	return inv.place(c, key), nil
}

// valid is the shape of a request, or the error of one that contradicts itself.
func (inv *Inventory) valid(r Request) (*shape, error) {
	if inv.shapes.by[r] == nil {
		if err := r.Validate(); err != nil {
			return nil, err
		}
	}
	return inv.shape(r), nil
}

// indexed reports whether an index is kept for a request.
func (inv *Inventory) indexed(r *Request) bool {
	return r.plain() && (r.Count <= 1 || !inv.policy.near())
}

// place makes the assignment of a key: of one in an index, or computed afresh.
func (inv *Inventory) place(c *shape, key uint64) Assignment {
	node, r := nodeOf(key), &c.request
	chosen := arrangement{}
	switch {
	case !inv.indexed(r):
		chosen, _ = inv.arrange(c, node)
	case r.Count == 1:
		_, position := inv.evaluate(c, node)
		chosen.gpus[0] = inv.entries[node].gpu[position]
	case r.Count > 1:
		positions, _ := inv.tightest(c, node)
		for i := range r.Count {
			chosen.gpus[i] = inv.entries[node].gpu[positions[i]]
		}
	}
	if inv.indexed(r) {
		for i := range r.Count {
			chosen.nics[i] = -1
		}
	}
	return inv.assignment(c, key, &chosen)
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
	o.gpu, o.spread, o.rank = int(a.gpus[0]), a.spread, c.worst(r.state.kind, a)
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
		Node: node, Name: n.Name, CPU: r.CPU, Memory: r.HostMemory, group: c.group,
	}
	if r.Count > 0 {
		a.Shares = make([]Share, r.Count)
	}
	for i := range a.Shares {
		at := int(chosen.gpus[i])
		g := &n.GPUs[at]
		share := &a.Shares[i]
		*share = Share{
			UUID: g.UUID, GPU: at, Limit: c.needs[inv.entries[node].state.kind][at].limit, SwapMemory: r.SwapMemory, Cores: r.coresOf(g),
			Whole: r.Whole, Overcommit: r.Overcommit, OvercommitCores: r.OvercommitCores,
		}
		if r.Swap {
			kept, turn := r.parts(share.Limit)
			share.Kept = kept
			share.Turn, _ = g.turnFor(kept, turn, 1, r.Overcommit)
		}
		if nic := chosen.nics[i]; r.Pair != RelationNone && nic >= 0 {
			share.NIC = n.NICs[nic].Name
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
