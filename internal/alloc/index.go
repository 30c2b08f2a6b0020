package alloc

// index keeps the keys of one class on all nodes in a tournament tree: the
// best is at its root. It is repaired where nodes have changed since its last
// use. When the model of the workload changes, keys are not all made anew at
// once, which would delay one decision by a millisecond, but the winner always,
// until a winner is up to date, and beside it sweepStep others at every use.
type index struct {
	base    int      // leaves; a power of two
	tree    []uint64 // the root is tree[1], the leaf of node i is tree[base+i]
	gpu     []uint8  // position of the GPU chosen on a node, for one share
	version []uint32 // of the workload, by node
	read    int      // how much of the log has been read
	sweep   int      // the next node to bring up to date
	behind  int      // how many nodes the sweep may still find out of date
	swept   uint32   // the version that behind belongs to
	made    bool     // whether tenants came and went when the keys were made, see Adaptive
}

// sweepStep is how many keys are brought up to date in passing, see index.
const sweepStep = 24

// readLimit is how many changes for each node are read at most: the same nodes
// change again and again, so that a long log is read faster than all is made anew.
const readLimit = 4

// find returns the best key of a plain class, or noKey.
func (inv *Inventory) find(c *class) uint64 {
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

func (x *index) repair(inv *Inventory, c *class) {
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

func (x *index) rebuild(inv *Inventory, c *class) {
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

// put changes one key and the winners above it.
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

// evaluate is the key of the best way to place the class on a node.
func (x *index) evaluate(inv *Inventory, c *class, node int) uint64 {
	x.version[node] = inv.work.version
	key, gpu := inv.evaluate(c, node)
	x.gpu[node] = uint8(gpu)
	return key
}

// evaluate is for plain requests; the others come to it through arrange.
func (inv *Inventory) evaluate(c *class, node int) (key uint64, gpu int) {
	r := &inv.records[node]
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

// consider starts an option with what the request takes of the host.
func (inv *Inventory) consider(c *class, node int) *option {
	r := &inv.records[node]
	inv.after = r.state
	inv.after.cpu -= min(c.cpu, inv.after.cpu)
	inv.after.memory -= min(c.memory, inv.after.memory)
	inv.option = option{inv: inv, class: c, node: node, before: &r.state, after: &inv.after}
	return &inv.option
}

// bestGPU tries one share on every GPU that differs from the others.
func (inv *Inventory) bestGPU(o *option) (key uint64, gpu int) {
	r := &inv.records[o.node]
	n := &inv.nodes[o.node]
	needs := o.class.needs[r.state.kind]
	rest := *o.after
	key = noKey
	for i := len(n.GPUs) - 1; i >= 0; i-- {
		at := int(r.gpu[i])
		need := &needs[at]
		if !o.class.takes(need, r.state.gpus[i], n, at) {
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

// takes is whether a share fits on a GPU with so much free. What is left within
// rounding is decided on the exact amounts.
func (c *class) takes(need *need, free cell, n *Node, at int) bool {
	r := &c.request
	switch {
	case need.cause != CauseNone || need.memory > free.memory+1 || need.cores > free.cores:
		return false
	case need.memory <= free.memory && !r.Overcommit:
		// A GPU that has tenants is below 1000, so this covers whole GPUs too.
		return true
	}
	return r.check(&n.GPUs[at], need, 1) == CauseNone
}

// skipEqual is the first position with the same free amounts and needs as i.
func (r *record) skipEqual(i int, needs []need) int {
	for i > 0 && r.state.gpus[i-1] == r.state.gpus[i] && needs[r.gpu[i-1]] == needs[r.gpu[i]] {
		i--
	}
	return i
}
