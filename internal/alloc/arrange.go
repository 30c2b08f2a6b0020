package alloc

import (
	"cmp"
	"slices"
)

// arrangement is a choice of GPUs on a node, with an adapter for each, or -1.
type arrangement struct {
	gpus   [MaxGPUs]uint8
	nics   [MaxGPUs]int8
	spread int
	// far is how far adapters are from their GPUs, see arranger.pair.
	far int
}

// tightest chooses count different GPUs for a plain request, the fullest that
// fit of those that are wanted most, and returns their positions in the node's order of fullness.
func (inv *Inventory) tightest(c *shape, node int) (positions [MaxGPUs]uint8, ok bool) {
	r, n := &inv.entries[node], &inv.nodes[node]
	needs := c.needs[r.state.kind]
	found := 0
	for rank, next := c.best(r.state.kind), uint8(mostRank); rank < mostRank && found < c.request.Count; rank, next = next, mostRank {
		for i := len(n.GPUs) - 1; i >= 0 && found < c.request.Count; i-- {
			at := r.gpu[i]
			if need := &needs[at]; need.rank == rank && inv.takes(c, need, r.state.gpus[i], n, int(at)) {
				positions[found] = uint8(i)
				found++
			} else if need.rank > rank {
				next = min(next, need.rank)
			}
		}
	}
	if c.request.Prefer != "" {
		slices.SortFunc(positions[:found], func(a, b uint8) int { return int(b) - int(a) })
	}
	return positions, found == c.request.Count
}

// takeAll subtracts one share from each of several GPUs of an option's state. The
// positions go from the fullest GPU to the emptiest, because taking from one can
// move only GPUs that are fuller.
func (inv *Inventory) takeAll(o *option, positions []uint8) {
	r := &inv.entries[o.node]
	for _, i := range positions {
		need := &o.shape.needs[r.state.kind][r.gpu[i]]
		o.rank = max(o.rank, need.rank)
		o.after.take(int(i), need.memory, need.cores)
	}
}

// arrange chooses GPUs on a node for any request: of all sets that fit, one whose
// adapters are nearest, then whose GPUs are nearest to each other, then the fullest. It can try every set, because
// a node has at most MaxGPUs.
func (inv *Inventory) arrange(c *shape, node int) (a arrangement, cause Cause) {
	return inv.arrangeWithout(c, node, 0)
}

// arrangeWithout is arrange without the GPUs for whose positions there is a bit.
func (inv *Inventory) arrangeWithout(c *shape, node int, without uint32) (a arrangement, cause Cause) {
	n, r := &inv.nodes[node], &inv.entries[node]
	inv.looked++
	if cause := c.request.hostCause(r, n); cause != CauseNone {
		return a, cause
	}
	s := arranger{node: n, entry: r, request: &c.request, wanted: c.request.Count}
	shares := 1
	if c.request.Same {
		s.wanted, shares = min(1, s.wanted), max(1, c.request.Count)
	}
	for i := len(n.GPUs) - 1; i >= 0; i-- {
		at := r.gpu[i]
		why := c.fits(n, int(at), &c.needs[r.state.kind][at], shares)
		if why == CauseNone && without&(1<<at) == 0 {
			s.fitting[s.count] = at
			s.count++
		}
		cause = max(cause, why)
	}
	switch {
	case s.wanted == 0:
		return a, CauseNone
	case s.count == 0 && without == 0:
		return a, cause
	case s.count < s.wanted:
		return a, max(cause, CauseTogether)
	}
	inv.order(c, node, s.fitting[:s.count])
	s.best.spread = -1
	if !s.bound() {
		return a, CauseNIC
	}
	s.search(0, 0, 0)
	inv.looked += s.tried
	if s.best.spread < 0 {
		return a, s.missing()
	}
	for i := s.wanted; i < c.request.Count; i++ {
		s.best.gpus[i], s.best.nics[i] = s.best.gpus[0], -1
	}
	return s.best, CauseNone
}

// order puts GPUs of a node that fit, the fullest first, into the order in which a request wants them.
func (inv *Inventory) order(c *shape, node int, fitting []uint8) {
	needs, gpus := c.needs[inv.entries[node].state.kind], inv.nodes[node].GPUs
	if c.request.Swap {
		crowding := func(at uint8) uint64 { return gpus[at].crowding(needs[at].limit) }
		slices.SortStableFunc(fitting, func(a, b uint8) int { return cmp.Compare(crowding(a), crowding(b)) })
	}
	if c.request.Prefer != "" {
		slices.SortStableFunc(fitting, func(a, b uint8) int { return cmp.Compare(needs[a].rank, needs[b].rank) })
	}
	if c.request.Profile != "" {
		inv.cheapest(c, node, fitting)
	}
}

// fits is check, and beside it what only some requests ask for: a GPU by name and an adapter.
func (c *shape) fits(n *Node, at int, need *need, shares int) Cause {
	g, r := &n.GPUs[at], &c.request
	if !r.names(g) || r.AvoidGPUs.Has(g.UUID) {
		return CauseNamed
	}
	if why := r.check(g, need, shares); why != CauseNone {
		return why
	}
	if !n.known(at, r.Together) {
		return CauseNear
	}
	return n.lacks(at, r.Pair)
}

// arranger searches the sets of GPUs of one node.
type arranger struct {
	node    *Node
	entry   *entry
	request *Request
	fitting [MaxGPUs]uint8 // the fullest first
	count   int
	wanted  int
	chosen  arrangement
	best    arrangement
	tried   int
	// least is less than or equal to the distance of the adapters in any arrangement.
	least int
}

// setsTried bounds the search where no relation narrows it. There are 12,870 sets
// of 8 out of 16 GPUs.
const setsTried = 1 << 14

// search extends the chosen set by each of the GPUs from position from on. Fuller
// GPUs come first, so the first of several equally near sets is the best.
func (s *arranger) search(from, depth, spread int) {
	if s.tried >= setsTried || s.best.spread >= 0 && spread >= s.best.spread && s.best.far <= s.least {
		return
	}
	if depth == s.wanted {
		s.tried++
		far, ok := s.pair()
		if ok && (s.best.spread < 0 || far < s.best.far || far == s.best.far && spread < s.best.spread) {
			s.best = s.chosen
			s.best.spread, s.best.far = spread, far
		}
		return
	}
	for i := from; i <= s.count-(s.wanted-depth); i++ {
		apart, near := s.apart(s.fitting[i], depth)
		if near {
			s.chosen.gpus[depth] = s.fitting[i]
			s.search(i+1, depth+1, spread+apart)
		}
	}
}

// apart returns how far a GPU is from those chosen, and whether that is near enough.
func (s *arranger) apart(gpu uint8, depth int) (distance int, near bool) {
	for _, other := range s.chosen.gpus[:depth] {
		relation := RelationNone
		if len(s.node.Near) > 0 {
			relation = s.node.Near[gpu][other]
		}
		if relation < s.request.Near || !s.node.together(int(gpu), int(other), s.request.Together) {
			return 0, false
		}
		distance += int(RelationNVLink - min(relation, RelationNVLink))
	}
	return distance, true
}

// missing says why no set was found although enough GPUs fit.
func (s *arranger) missing() Cause {
	if s.request.Near == RelationNone && s.request.Together == 0 && s.request.Pair != RelationNone {
		return CauseNIC
	}
	return CauseNear
}
