package queue

// shares are what queues have in one dimension, by node.
type shares struct {
	dimension int
	// guaranteed is that in effect. It depends on specifications and capacity alone.
	guaranteed []int64
	// wanted is what a queue can make use of, withheld what it keeps of its guarantee though it is idle, and entitled what
	// it gets.
	wanted, withheld, entitled []int64
	scaled                     []bool
}

func newShares(t *Tree, dimension int) *shares {
	n := len(t.nodes)
	all := make([]int64, 4*n)
	return &shares{
		dimension: dimension, scaled: make([]bool, n),
		guaranteed: all[:n:n], wanted: all[n : 2*n : 2*n], withheld: all[2*n : 3*n : 3*n], entitled: all[3*n:],
	}
}

// guarantee computes what is guaranteed in effect.
func (s *shares) guarantee(t *Tree, capacity int64) {
	asked := make([]int64, len(t.nodes))
	for i := len(t.nodes) - 1; i > 0; i-- {
		n := &t.nodes[i]
		if q := &n.quotas[s.dimension]; q.named {
			asked[i] = min(q.guaranteed, q.limit)
		}
		if n.parent != Top && !t.nodes[n.parent].quotas[s.dimension].named {
			asked[n.parent] += asked[i]
		}
	}
	clear(s.scaled)
	s.guaranteed[Top] = capacity
	for i := range t.nodes {
		n := &t.nodes[i]
		if len(n.parts) == 0 {
			continue
		}
		sum := int64(0)
		wants := make([]int64, len(n.parts))
		for j, part := range n.parts {
			wants[j] = asked[part]
			sum += asked[part]
		}
		there := s.guaranteed[i]
		given := wants
		if sum > there {
			given = divide(there, wants, wants)
		}
		for j, part := range n.parts {
			s.guaranteed[part] = given[j]
			s.scaled[part] = given[j] < wants[j]
		}
		if own := n.parts[0]; t.nodes[own].own && sum < there {
			s.guaranteed[own] = there - sum
		}
	}
}

// entitle computes what queues get for a demand, which is given for queues without parts.
func (s *shares) entitle(t *Tree, demand func(Node) int64) {
	for i := len(t.nodes) - 1; i > 0; i-- {
		n := &t.nodes[i]
		q := &n.quotas[s.dimension]
		wanted := int64(0)
		if len(n.parts) == 0 {
			wanted = demand(Node(i))
		}
		for _, part := range n.parts {
			wanted += s.wanted[part] + s.withheld[part]
		}
		s.wanted[i] = min(wanted, q.limit)
		s.withheld[i] = withheld(s.guaranteed[i], s.wanted[i], q.lends)
	}
	s.entitled[Top] = s.guaranteed[Top]
	for i := range t.nodes {
		n := &t.nodes[i]
		if len(n.parts) == 0 {
			continue
		}
		pool := s.entitled[i]
		wants, weights := make([]int64, len(n.parts)), make([]int64, len(n.parts))
		for j, part := range n.parts {
			kept := min(s.guaranteed[part], s.wanted[part])
			pool -= kept + s.withheld[part]
			wants[j] = s.wanted[part] - kept
			weights[j] = t.nodes[part].quotas[s.dimension].weight
			if t.nodes[part].own {
				weights[j] = s.guaranteed[part]
			}
			s.entitled[part] = kept
		}
		for j, more := range divide(pool, wants, weights) {
			s.entitled[n.parts[j]] += more
		}
	}
}

// withheld is what a queue keeps of its guarantee beyond what it uses and lends.
func withheld(guaranteed, used, lends int64) int64 {
	return max(0, guaranteed-min(guaranteed, used)-lends)
}
