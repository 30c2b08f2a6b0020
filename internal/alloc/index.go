package alloc

// index keeps the keys of one shape on all nodes in a tournament tree, whose root
// has the best key. Each use first updates the keys of the nodes that have changed
// since the last one. A new model of the workload makes all keys anew.
//
// So a key depends on the node's state and on the model alone, and never on when the index was used before or made.
type index struct {
	base    int      // leaves; a power of two
	tree    []uint64 // the root is tree[1], the leaf of node i is tree[base+i]
	gpu     []uint8  // position in the node's order of the GPU chosen, for one share
	read    int      // how much of the inventory's log has been read
	version uint32   // of the workload
	made    bool     // turnover.restless when the keys were computed, see Adaptive
}

// readLimit is how many changes per node are read at most; beyond it, the index is
// rebuilt. It exceeds 1 because the same nodes change again and again.
const readLimit = 4

// bytes is what an index of so many leaves and nodes takes.
func indexBytes(base, nodes int) int { return 16*base + nodes }

// find brings the index of a plain request's shape up to date.
func (inv *Inventory) find(c *shape) *index {
	if c.index == nil || c.index.base < len(inv.nodes) {
		x := &index{base: 1, read: -1}
		for x.base < len(inv.nodes) {
			x.base *= 2
		}
		x.tree = make([]uint64, 2*x.base)
		x.gpu = make([]uint8, x.base)
		c.index = x
		inv.shapes.grown(c, indexBytes(x.base, x.base))
	}
	c.index.repair(inv, c)
	return c.index
}

func (x *index) repair(inv *Inventory, c *shape) {
	end := inv.logged + len(inv.log)
	if x.read < inv.logged || end-x.read >= readLimit*len(inv.nodes) || inv.policy.random ||
		x.version != inv.work.version || x.made != inv.turnover.restless {
		x.rebuild(inv, c)
		x.made, x.version, x.read = inv.turnover.restless, inv.work.version, end
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
}

// rebuild computes all keys. Nodes in the same state share the computation.
func (x *index) rebuild(inv *Inventory, c *shape) {
	states := !inv.policy.random && !inv.policy.beyond
	inv.same.begin(len(inv.nodes))
	for node := range inv.nodes {
		if !inv.mayFit(c, node) {
			x.tree[x.base+node] = noKey
			continue
		}
		if states {
			if like := inv.same.find(inv, node); like >= 0 {
				key := x.tree[x.base+like]
				if key != noKey {
					key = key&^(1<<nodeBits-1) | uint64(node)
				}
				x.tree[x.base+node], x.gpu[node] = key, x.gpu[like]
				continue
			}
		}
		inv.exactly = false
		x.tree[x.base+node] = x.evaluate(inv, c, node)
		if states && !inv.exactly && !inv.kinds.all[inv.entries[node].state.kind].several {
			inv.same.add(inv, node)
		}
	}
	for i := len(inv.nodes); i < x.base; i++ {
		x.tree[x.base+i] = noKey
	}
	for i := x.base - 1; i > 0; i-- {
		x.tree[i] = min(x.tree[2*i], x.tree[2*i+1])
	}
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
	key, gpu := inv.evaluate(c, node)
	x.gpu[node] = uint8(gpu)
	return key
}

// mayFit is false for a node on which a plain request certainly does not fit.
func (inv *Inventory) mayFit(c *shape, node int) bool {
	r := &inv.entries[node]
	if r.absent || c.request.CPU > r.cpu || c.request.HostMemory > r.memory {
		return false
	}
	return c.request.Count == 0 || c.least[r.state.kind] <= r.state.gpus[0].memory+1
}

// evaluate returns the key of a plain request on a node, and for one share the position of its GPU in the node's order.
func (inv *Inventory) evaluate(c *shape, node int) (key uint64, position int) {
	if !inv.mayFit(c, node) {
		return noKey, 0
	}
	o := inv.consider(c, node)
	if c.request.Count == 0 {
		o.rank = c.rank[o.before.kind]
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
func (inv *Inventory) bestGPU(o *option) (key uint64, position int) {
	r := &inv.entries[o.node]
	n := &inv.nodes[o.node]
	needs := o.shape.needs[r.state.kind]
	rest := *o.after
	key = noKey
	for i := len(n.GPUs) - 1; i >= 0; i-- {
		at := int(r.gpu[i])
		need := &needs[at]
		if !inv.takes(o.shape, need, r.state.gpus[i], n, at) {
			continue
		}
		*o.after = rest
		o.after.take(i, need.memory, need.cores)
		o.gpu, o.rank = at, need.rank
		if k := inv.policy.key(o); k < key {
			key, position = k, i
		}
		if inv.policy.tightest && o.shape.request.Prefer == "" {
			break
		}
		if !inv.policy.random {
			i = r.skipEqual(i, needs)
		}
	}
	return key, position
}

// takes reports whether a share fits on a GPU that has this much free. Where
// rounding could decide, it compares the exact amounts.
func (inv *Inventory) takes(c *shape, need *need, free cell, n *Node, at int) bool {
	r := &c.request
	switch {
	case need.cause != CauseNone || need.memory > free.memory+1 || need.cores > free.cores:
		return false
	case need.memory <= free.memory && need.memory > 0 && !r.Overcommit:
		// A GPU that has tenants has less than 1000 free, so this covers whole GPUs too.
		return true
	}
	inv.exactly = true
	return r.check(&n.GPUs[at], need, 1) == CauseNone
}

// skipEqual returns the first position with the same free amounts and needs as i.
func (r *entry) skipEqual(i int, needs []need) int {
	for i > 0 && r.state.gpus[i-1] == r.state.gpus[i] && needs[r.gpu[i-1]] == needs[r.gpu[i]] {
		i--
	}
	return i
}

// sameStates finds nodes in the same state as one that was seen before. It is a hash table that is cleared by counting up.
type sameStates struct {
	nodes []int32
	seen  []uint32
	now   uint32
}

func (s *sameStates) begin(nodes int) {
	size := 16
	for size < 2*nodes {
		size *= 2
	}
	if len(s.nodes) != size {
		s.nodes, s.seen, s.now = make([]int32, size), make([]uint32, size), 0
	}
	s.now++
	if s.now == 0 {
		clear(s.seen)
		s.now = 1
	}
}

// find is a node that was added and is in the same state, or -1.
func (s *sameStates) find(inv *Inventory, node int) int {
	r := &inv.entries[node]
	mask := len(s.nodes) - 1
	for i := int(r.hash) & mask; s.seen[i] == s.now; i = (i + 1) & mask {
		if like := &inv.entries[s.nodes[i]]; like.hash == r.hash && like.state == r.state {
			return int(s.nodes[i])
		}
	}
	return -1
}

func (s *sameStates) add(inv *Inventory, node int) {
	mask := len(s.nodes) - 1
	i := int(inv.entries[node].hash) & mask
	for s.seen[i] == s.now {
		i = (i + 1) & mask
	}
	s.nodes[i], s.seen[i] = int32(node), s.now
}
