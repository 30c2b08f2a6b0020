package alloc

import (
	"cmp"
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// mostNICs is how many adapters of a node are looked at. No machine on sale has more than 32.
const mostNICs = 64

// reaches are the relations of an adapter to its GPU, from near to far. GPUDirect RDMA works well below one switch or
// several; several are as good as one, because a switch with two levels looks like them.
var reaches = [...]Relation{RelationSwitches, RelationHost, RelationNUMA, RelationSystem}

// relations are what the reaches of pairs ask of an adapter and its GPU.
var relations = map[v1alpha1.PairReach]Relation{
	v1alpha1.ReachStrict: RelationSwitches, v1alpha1.ReachBridge: RelationHost, v1alpha1.ReachSocket: RelationNUMA,
}

// RelationOf is the least relation that a GPU and its adapter have in pairs of a reach; [RelationNone] for another word. It is for
// Pair of a [Request].
func RelationOf(reach v1alpha1.PairReach) Relation { return relations[reach] }

// lacks says why a GPU has no adapter, if it must have one that is so near.
func (n *Node) lacks(gpu int, least Relation) Cause {
	if least == RelationNone {
		return CauseNone
	}
	cause := CauseNoNIC
	for i := range n.nics() {
		if n.NICs[i].Near[gpu] < least {
			continue
		}
		if n.NICs[i].free() > 0 {
			return CauseNone
		}
		cause = CauseNIC
	}
	return cause
}

func (n *Node) nics() []NIC { return n.NICs[:min(len(n.NICs), mostNICs)] }

// matching gives adapters to GPUs.
type matching struct {
	node *Node
	gpus []uint8
	// nic has the adapter of each GPU, or -1, and used how many have each adapter.
	nic  [MaxGPUs]int8
	used [mostNICs]int
}

// match gives as many of these GPUs as possible an adapter, at most as far as the last relation: as many as possible one that is as near as the
// first relation, and so on. It returns how many have got one up to each relation.
//
// A GPU that has an adapter keeps one, and may get another so that a further GPU gets this one (augmenting paths). Where an adapter with
// room is near enough it is taken before any other is moved. So nobody's adapter gets farther: places of the kinds lie
// within each other, and what a GPU could be moved to is as near to the one for which it would be moved.
func (m *matching) match(least Relation) (got [len(reaches)]int) {
	for i := range m.gpus {
		m.nic[i] = -1
	}
	count := 0
	for k, near := range reaches {
		for i := range m.gpus {
			var seen uint64
			if near >= least && m.nic[i] < 0 && m.augment(i, near, &seen) {
				count++
			}
		}
		got[k] = count
	}
	return got
}

// augment gives a GPU an adapter at least so near, and moves others for it.
func (m *matching) augment(i int, near Relation, seen *uint64) bool {
	all := m.node.nics()
	free := -1
	for at := range all {
		n := &all[at]
		if n.Near[m.gpus[i]] < near || m.used[at] >= n.free() {
			continue
		}
		if free < 0 || cmp.Or(cmp.Compare(n.Granted+m.used[at], all[free].Granted+m.used[free]), cmp.Compare(all[free].Near[m.gpus[i]], n.Near[m.gpus[i]])) < 0 {
			free = at // the one that the fewest have
		}
	}
	if free >= 0 {
		m.nic[i], m.used[free] = int8(free), m.used[free]+1
		return true
	}
	for at := range all {
		if all[at].Near[m.gpus[i]] < near || *seen&(1<<at) != 0 || all[at].free() < 1 {
			continue
		}
		*seen |= 1 << at
		for j := range m.gpus {
			if int(m.nic[j]) == at && j != i && m.augment(j, near, seen) {
				m.used[at]--
				m.nic[i], m.used[at] = int8(at), m.used[at]+1
				return true
			}
		}
	}
	return false
}

// bound reports whether enough of the GPUs that fit can have an adapter each, and notes how far these are at least.
func (s *arranger) bound() bool {
	if s.request.Pair == RelationNone {
		return true
	}
	m := matching{node: s.node, gpus: s.fitting[:s.count]}
	got := m.match(s.request.Pair)
	s.least = farness(got, s.wanted)
	return got[len(got)-1] >= s.wanted
}

// farness orders what match returns for so many GPUs: the fewer adapters are beyond the first relation, the less; then the fewer are beyond
// the second, and so on.
func farness(got [len(reaches)]int, wanted int) (far int) {
	for _, n := range got[:len(got)-1] {
		far = far*(MaxGPUs+1) + max(0, wanted-n)
	}
	return far
}

// pair gives every chosen GPU an adapter, and reports whether there are enough and how far they are.
func (s *arranger) pair() (far int, ok bool) {
	if s.request.Pair == RelationNone {
		for i := range s.wanted {
			s.chosen.nics[i] = -1
		}
		return 0, true
	}
	m := matching{node: s.node, gpus: s.chosen.gpus[:s.wanted]}
	got := m.match(s.request.Pair)
	copy(s.chosen.nics[:], m.nic[:s.wanted])
	return farness(got, s.wanted), !slices.Contains(m.nic[:s.wanted], -1)
}
