package alloc

// index keeps the keys of one shape on all nodes in a tournament tree, whose root
// has the best key. Each use first updates the keys of the nodes that have changed
// since the last one. When the model of the workload changes, all keys are out of
// date. Computing all of them at once would delay one decision by a millisecond,
// so each use updates the best key until it stays the best, and sweepStep others.
type index struct {
	base    int      // leaves; a power of two
	tree    []uint64 // the root is tree[1], the leaf of node i is tree[base+i]
	gpu     []uint8  // position of the GPU chosen on a node, for one share
	version []uint32 // of the workload, by node
	read    int      // how much of the inventory's log has been read
	sweep   int      // the next node to update
	behind  int      // how many nodes may still be out of date
	swept   uint32   // the version that behind belongs to
	made    bool     // turnover.restless when the keys were computed, see Adaptive
}

// sweepStep is how many keys each use updates besides the best, see index.
const sweepStep = 24

// readLimit is how many changes per node are read at most; beyond it, the index is
// rebuilt. It exceeds 1 because the same nodes change again and again.
const readLimit = 4

// find returns the best key of the shape of a plain request, or noKey.
func (inv *Inventory) find(c *shape) uint64 {
	x := c.index
	if x == nil {
		x = &index{base: 1, read: -1}
		for x.base < len(inv.nodes) {
			x.base *= 2
		}
		x.tree = make([]uint64, 2*x.base)
		x.gpu = make([]uint8, len(inv.nodes))
		x.version = make([]uint32, len(inv.nodes))
		c.index = x
	}
	x.repair(inv, c)
	for {
		best := x.tree[1]
		if best == noKey {
			return best
		}
		node := nodeOf(best)
		if x.version[node] == inv.work.version {
			return best
		}
		x.put(node, x.evaluate(inv, c, node))
	}
}

func (x *index) repair(inv *Inventory, c *shape) {
	end := inv.logged + len(inv.log)
	if x.read < inv.logged || end-x.read >= readLimit*len(inv.nodes) || inv.policy.random || x.made != inv.turnover.restless {
		x.made = inv.turnover.restless
		x.rebuild(inv, c)
		x.read = end
		return
	}
	inv.tick++
	for i := len(inv.log) - 1; i >= x.read-inv.logged; i-- {
		node := int(inv.log[i])
		if inv.stamp[node] != inv.tick {
			inv.stamp[node] = inv.tick
			x.put(node, x.evaluate(inv, c, node))
		}
	}
	x.read = end
	if x.swept != inv.work.version {
		x.swept, x.behind = inv.work.version, len(inv.nodes)
	}
	for step := 0; step < sweepStep && x.behind > 0; x.behind-- {
		if x.version[x.sweep] != inv.work.version {
			x.put(x.sweep, x.evaluate(inv, c, x.sweep))
			step++
		}
		x.sweep = (x.sweep + 1) % len(inv.nodes)
	}
}

func (x *index) rebuild(inv *Inventory, c *shape) {
	for node := range inv.nodes {
		x.tree[x.base+node] = x.evaluate(inv, c, node)
	}
	for i := len(inv.nodes); i < x.base; i++ {
		x.tree[x.base+i] = noKey
	}
	for i := x.base - 1; i > 0; i-- {
		x.tree[i] = min(x.tree[2*i], x.tree[2*i+1])
	}
	x.swept, x.behind = inv.work.version, 0
}

// put changes one key and updates the path to the root.
func (x *index) put(node int, key uint64) {
	i := x.base + node
	if x.tree[i] == key {
		return
	}
	x.tree[i] = key
	for i > 1 {
		i /= 2
		winner := min(x.tree[2*i], x.tree[2*i+1])
		if x.tree[i] == winner {
			return
		}
		x.tree[i] = winner
	}
}

// evaluate returns the key of the best way to place the shape on a node.
func (x *index) evaluate(inv *Inventory, c *shape, node int) uint64 {
	x.version[node] = inv.work.version
	key, gpu := inv.evaluate(c, node)
	x.gpu[node] = uint8(gpu)
	return key
}

// evaluate returns the key of a plain request on a node, and the GPU for one share.
func (inv *Inventory) evaluate(c *shape, node int) (key uint64, gpu int) {
	r := &inv.entries[node]
	if c.request.CPU > r.cpu || c.request.HostMemory > r.memory {
		return noKey, 0
	}
	if c.request.Count > 0 && c.least[r.state.kind] > r.state.gpus[0].memory+1 {
		return noKey, 0
	}
	o := inv.consider(c, node)
	if c.request.Count == 0 {
		return inv.policy.key(o), 0
	}
	if c.request.Count > 1 {
		positions, ok := inv.tightest(c, node)
		if !ok {
			return noKey, 0
		}
		inv.takeAll(o, positions[:c.request.Count])
		return inv.policy.key(o), 0
	}
	return inv.bestGPU(o)
}

// consider begins an option: it subtracts what the request takes of the host.
func (inv *Inventory) consider(c *shape, node int) *option {
	r := &inv.entries[node]
	inv.after = r.state
	inv.after.cpu -= min(c.cpu, inv.after.cpu)
	inv.after.memory -= min(c.memory, inv.after.memory)
	inv.option = option{inv: inv, shape: c, node: node, before: &r.state, after: &inv.after}
	return &inv.option
}

// bestGPU tries one share on every GPU, but only once on GPUs that are alike.
func (inv *Inventory) bestGPU(o *option) (key uint64, gpu int) {
	r := &inv.entries[o.node]
	n := &inv.nodes[o.node]
	needs := o.shape.needs[r.state.kind]
	rest := *o.after
	key = noKey
	for i := len(n.GPUs) - 1; i >= 0; i-- {
		at := int(r.gpu[i])
		need := &needs[at]
		if !o.shape.takes(need, r.state.gpus[i], n, at) {
			continue
		}
		*o.after = rest
		o.after.take(i, need.memory, need.cores)
		o.gpu = at
		if k := inv.policy.key(o); k < key {
			key, gpu = k, at
		}
		if inv.policy.tightest {
			break
		}
		if !inv.policy.random {
			i = r.skipEqual(i, needs)
		}
	}
	return key, gpu
}

// takes reports whether a share fits on a GPU that has this much free. Where
// rounding could decide, it compares the exact amounts.
func (c *shape) takes(need *need, free cell, n *Node, at int) bool {
	r := &c.request
	switch {
	case need.cause != CauseNone || need.memory > free.memory+1 || need.cores > free.cores:
		return false
	case need.memory <= free.memory && !r.Overcommit:
		// A GPU that has tenants has less than 1000 free, so this covers whole GPUs too.
		return true
	}
	return r.check(&n.GPUs[at], need, 1) == CauseNone
}

// skipEqual returns the first position with the same free amounts and needs as i.
func (r *entry) skipEqual(i int, needs []need) int {
	for i > 0 && r.state.gpus[i-1] == r.state.gpus[i] && needs[r.gpu[i-1]] == needs[r.gpu[i]] {
		i--
	}
	return i
}
