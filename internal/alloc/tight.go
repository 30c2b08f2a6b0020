package alloc

import (
	"math/bits"
	"slices"
)

// tightPolicy orders the choices of whoever tries much.
var tightPolicy, _ = PolicyNamed("bestfit")

// TightChoices is [Inventory.PodChoices] with the tightest place first, whatever the policy of the inventory is. It is much
// quicker than most policies are, and serves to find out whether something fits. For a pod of several claims, the first
// node is the one that has the least free before, and it costs the solution of few nodes.
func (inv *Inventory) TightChoices(p *Pod, among *NodeSet) (*Choices, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	s := &Choices{inv: inv, among: among, tight: true}
	if r, ok := p.one(); ok {
		s.shape = inv.shape(r)
	} else {
		s.pod = inv.podShape(p)
	}
	s.changes = inv.changes()
	s.all()
	return s, nil
}

// looseKey puts nodes on which a pod may fit into an order without solving them: the one with the least free GPUs first.
func (inv *Inventory) looseKey(p *podShape, node int) uint64 {
	if !inv.mayFitPod(p, node) {
		return noKey
	}
	return uint64(inv.entries[node].state.freeGPU())<<nodeBits | uint64(node)
}

// mayFitPod is false for a node on which a pod certainly does not fit. It rules most of those out, at little cost.
func (inv *Inventory) mayFitPod(p *podShape, node int) bool {
	r := &inv.entries[node]
	if r.absent || p.cpu > r.cpu || p.memory > r.memory {
		return false
	}
	all, whole, shared := uint32(0), 0, 0
	for _, claim := range p.shapes {
		serving, least := inv.serving(claim, node), leastGPUs(claim)
		if bits.OnesCount32(serving) < least {
			return false
		}
		all |= serving
		if slices.ContainsFunc(claim, func(c *shape) bool { return !c.request.Whole }) {
			shared = max(shared, least)
		} else {
			whole += least
		}
	}
	// Whole GPUs are shared with no other claim.
	return bits.OnesCount32(all) >= whole+shared && !inv.tooMany(p, node, all)
}

// with lets do decide by the policy of the choices.
func (s *Choices) with(do func()) {
	if !s.tight {
		do()
		return
	}
	own := s.inv.policy
	s.inv.policy = tightPolicy
	do()
	s.inv.policy = own
}

// Explain says why a pod fits on none of some nodes; nil is all. It is nil for a pod that fits. The error is [ErrRequest].
func (inv *Inventory) Explain(p *Pod, among *NodeSet) (*Refusal, error) {
	s, err := inv.TightChoices(p, among)
	if err != nil {
		return nil, err
	}
	if _, fits := s.Next(); fits {
		return nil, nil
	}
	return s.Refusal(), nil
}

// mostJoint bounds the kinds of pods of a [Joint].
const mostJoint = 3

// Joint tells for how many pods of a few kinds a node has room at once, no two of which share a GPU.
type Joint struct {
	inv    *Inventory
	pods   []*podShape
	counts [mostJoint]int
}

// Joint prepares the question for up to three kinds of pods with at most one claim each, without alternatives. It reports
// false for others.
func (inv *Inventory) Joint(pods []*Pod) (*Joint, bool) {
	if len(pods) > mostJoint {
		return nil, false
	}
	j := &Joint{inv: inv}
	for i, p := range pods {
		if len(p.Claims) > 1 || len(p.Claims) == 1 && len(p.Claims[0]) != 1 || p.Validate() != nil {
			return nil, false
		}
		if len(p.Claims) == 1 {
			r := &p.Claims[0][0]
			if j.counts[i] = r.Count; r.Same {
				j.counts[i] = 1
			}
		}
		j.pods = append(j.pods, inv.podShape(p))
	}
	return j, true
}

// JointRoom is what a node has for the pods of a [Joint].
type JointRoom struct {
	joint  *Joint
	cpu    int64
	memory uint64
	// serving is how many GPUs serve at least one of a set of kinds.
	serving [1 << mostJoint]int
}

// At is the room of a node.
func (j *Joint) At(node int) JointRoom {
	r, n := &j.inv.entries[node], &j.inv.nodes[node]
	room := JointRoom{joint: j, cpu: r.cpu, memory: r.memory}
	if r.absent {
		room.cpu = -1
		return room
	}
	for i := range n.GPUs {
		set := 0
		for k, p := range j.pods {
			if len(p.shapes) == 1 {
				if c := p.shapes[0][0]; c.fits(n, i, &c.needs[r.state.kind][i], 1) == CauseNone {
					set |= 1 << k
				}
			}
		}
		for of := range room.serving {
			if of&set != 0 {
				room.serving[of]++
			}
		}
	}
	return room
}

// Serving is how many GPUs serve a kind of pod.
func (r *JointRoom) Serving(kind int) int { return r.serving[1<<kind] }

// Fits reports whether there is room for these numbers of pods. Each GPU serves one share, so there are enough GPUs if
// there are enough for each set of kinds (Hall's theorem). It looks at neither relations between GPUs nor adapters.
func (r *JointRoom) Fits(numbers [mostJoint]int) bool {
	cpu, memory := int64(0), uint64(0)
	for k, p := range r.joint.pods {
		cpu += int64(numbers[k]) * p.cpu
		memory += uint64(numbers[k]) * p.memory
	}
	if cpu > r.cpu || memory > r.memory {
		return false
	}
	for set := 1; set < len(r.serving); set++ {
		wanted := 0
		for rest := uint(set); rest != 0; rest &= rest - 1 {
			k := bits.TrailingZeros(rest)
			wanted += numbers[k] * r.joint.counts[k]
		}
		if wanted > r.serving[set] {
			return false
		}
	}
	return true
}
