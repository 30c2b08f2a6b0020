package alloc

import "slices"

// NodeSet is a set of positions of nodes. The zero value is empty.
type NodeSet struct {
	bits []uint64
	n    int
}

// Add puts a position into the set.
func (s *NodeSet) Add(position int) {
	if position < 0 || s.Has(position) {
		return
	}
	for position/64 >= len(s.bits) {
		s.bits = append(s.bits, 0)
	}
	s.bits[position/64] |= 1 << (position % 64)
	s.n++
}

// Has reports whether a position is in the set.
func (s *NodeSet) Has(position int) bool {
	return position >= 0 && position/64 < len(s.bits) && s.bits[position/64]&(1<<(position%64)) != 0
}

// Len is how many positions the set has.
func (s *NodeSet) Len() int { return s.n }

// Choices are the places for a request, one on each node on which it fits, the best first. They hold as long as the
// inventory does not change: after that, Next answers no more.
type Choices struct {
	inv   *Inventory
	among *NodeSet
	shape *shape
	pod   *podShape // for several claims
	// heap has keys in the order of a heap, or places in the tree of index.
	heap    []uint64
	index   *index
	changes int
	last    uint64
	tight   bool // see TightChoices
}

// Choices begins the search for a request among some nodes; nil is all. The first choice is that of [Search]. The error is
// [ErrRequest].
func (inv *Inventory) Choices(r Request, among *NodeSet) (*Choices, error) {
	c, err := inv.valid(r)
	if err != nil {
		return nil, err
	}
	s := &Choices{inv: inv, among: among, shape: c, changes: inv.changes()}
	// Going through the tree passes nodes that are not in the set.
	few := among != nil && among.Len()*8 < len(inv.nodes)
	switch {
	case inv.present == 0:
	case inv.indexed(&c.request) && !few:
		s.index = inv.find(c)
		s.push(1)
	default:
		s.all()
	}
	return s, nil
}

// key is that of the request, or of the pod, on a node.
func (s *Choices) key(node int) (key uint64) {
	s.with(func() { key = s.keyByPolicy(node) })
	return key
}

func (s *Choices) keyByPolicy(node int) uint64 {
	inv, c := s.inv, s.shape
	switch {
	case s.tight && s.pod != nil:
		return inv.looseKey(s.pod, node)
	case s.pod != nil:
		key := inv.ratePod(s.pod, node, nil)
		if key == untried {
			return noKey
		}
		return key
	case inv.indexed(&c.request):
		key, _ := inv.evaluate(c, node)
		return key
	}
	a, cause := inv.arrange(c, node)
	if cause != CauseNone {
		return noKey
	}
	return inv.keyOf(c, node, &a)
}

// Again makes a node a choice again that Next gave, with what it has left. The caller may have reserved and set aside on
// such nodes alone since Choices began: then the next choice is the best there is, as if they began anew.
func (s *Choices) Again(node int) {
	inv := s.inv
	if s.index != nil {
		s.index = inv.find(s.shape)
		s.push(s.index.base + node)
	} else if key := s.key(node); key != noKey {
		s.heap = append(s.heap, key)
		s.rise(len(s.heap) - 1)
	}
	s.changes = inv.changes()
}

// changes counts what happened to the inventory.
func (inv *Inventory) changes() int {
	return inv.logged + len(inv.log) + int(inv.work.version) + int(inv.observed)
}

// all puts the keys of all nodes of the set into the heap.
func (s *Choices) all() {
	for node := range s.inv.nodes {
		if s.among != nil && !s.among.Has(node) {
			continue
		}
		if key := s.key(node); key != noKey {
			s.heap = append(s.heap, key)
		}
	}
	slices.Sort(s.heap) // which is a heap too
}

// Next is the next best place. It reports false where there is none, or the inventory has changed.
func (s *Choices) Next() (Assignment, bool) {
	if s.changes != s.inv.changes() {
		return Assignment{}, false
	}
	for len(s.heap) > 0 {
		key := s.pop()
		if s.index != nil {
			at := int(key)
			if at < s.index.base {
				s.push(2 * at)
				s.push(2*at + 1)
				continue
			}
			key = s.index.tree[at]
		}
		if s.among != nil && !s.among.Has(nodeOf(key)) {
			continue
		}
		s.last = key
		a := s.assignment(key)
		if s.pod != nil && len(a.Shares) == 0 {
			continue // a tight choice that does not fit after all
		}
		return a, true
	}
	return Assignment{}, false
}

// assignment is that of a key.
func (s *Choices) assignment(key uint64) (a Assignment) {
	s.with(func() {
		if s.pod != nil {
			a = s.inv.placePod(s.pod, nodeOf(key))
		} else {
			a = s.inv.place(s.shape, key)
		}
	})
	return a
}

// Rank is how little the preference wants the GPUs of the last choice; 0 is most.
func (s *Choices) Rank() int { return int(s.last >> (64 - rankBits)) }

// Refusal says why no node was found, also if those that were did not suit. It is nil if the inventory has changed.
func (s *Choices) Refusal() *Refusal {
	switch {
	case s.changes != s.inv.changes():
		return nil
	case s.pod != nil:
		return s.inv.podRefusal(s.pod, s.among)
	}
	return s.inv.refusalAmong(s.shape, s.among)
}

// rank is what the heap compares.
func (s *Choices) rank(v uint64) uint64 {
	if s.index != nil {
		return s.index.tree[v]
	}
	return v
}

// push adds a place in the tree, unless nothing fits there.
func (s *Choices) push(v int) {
	if s.index.tree[v] == noKey {
		return
	}
	s.heap = append(s.heap, uint64(v))
	s.rise(len(s.heap) - 1)
}

// rise moves what is at a place of the heap to where it belongs.
func (s *Choices) rise(i int) {
	for ; i > 0 && s.rank(s.heap[i]) < s.rank(s.heap[(i-1)/2]); i = (i - 1) / 2 {
		s.heap[i], s.heap[(i-1)/2] = s.heap[(i-1)/2], s.heap[i]
	}
}

// pop takes the least.
func (s *Choices) pop() uint64 {
	least, last := s.heap[0], len(s.heap)-1
	s.heap[0] = s.heap[last]
	s.heap = s.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return least
		}
		if child+1 < last && s.rank(s.heap[child+1]) < s.rank(s.heap[child]) {
			child++
		}
		if s.rank(s.heap[i]) <= s.rank(s.heap[child]) {
			return least
		}
		s.heap[i], s.heap[child] = s.heap[child], s.heap[i]
		i = child
	}
}
