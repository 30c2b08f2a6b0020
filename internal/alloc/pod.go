package alloc

import (
	"cmp"
	"fmt"
)

// Pod asks for everything that a pod needs, all of it on one node.
type Pod struct {
	// Claims are what the pod's claims ask, each with its alternatives in the order in which they are wanted: on a node, a
	// claim gets the first that fits, together with what the claims before it got. Claims ask nothing of the host.
	Claims [][]Request
	Bonds  []Bond
	// CPU is in thousandths of a processor, HostMemory in bytes.
	CPU        int64
	HostMemory uint64
}

// MostClaims and mostAlternatives bound a pod, triesPerNode the search on one node, and mostTries that for [Ratings].
const (
	MostClaims       = 32
	mostAlternatives = 8
	triesPerNode     = 2048
)

// podShape is a pod with the shapes of what it asks.
type podShape struct {
	shapes [][]*shape
	bonds  []Bond
	cpu    int64
	memory uint64
}

// one is the request of a pod with one claim that has no alternative, or with none.
func (p *Pod) one() (Request, bool) {
	switch {
	case len(p.Claims) == 0:
		return Request{CPU: p.CPU, HostMemory: p.HostMemory}, true
	case len(p.Claims) == 1 && len(p.Claims[0]) == 1:
		r := p.Claims[0][0]
		r.CPU, r.HostMemory = p.CPU, p.HostMemory
		return r, true
	}
	return Request{}, false
}

// Validate returns the first fault of a pod; it wraps [ErrRequest].
func (p *Pod) Validate() error {
	if len(p.Claims) > MostClaims || p.CPU < 0 {
		return fmt.Errorf("%w: %d claims and %d thousandths of a processor: ask for at most %d claims", ErrRequest, len(p.Claims), p.CPU, MostClaims)
	}
	for i := range p.Bonds {
		if err := p.Bonds[i].validate(len(p.Claims)); err != nil {
			return err
		}
	}
	for i, claim := range p.Claims {
		if len(claim) == 0 || len(claim) > mostAlternatives {
			return fmt.Errorf("%w: claim %d has %d alternatives: give 1 to %d", ErrRequest, i, len(claim), mostAlternatives)
		}
		for j := range claim {
			r := &claim[j]
			if err := r.Validate(); err != nil {
				return fmt.Errorf("claim %d: %w", i, err)
			}
			if r.CPU != 0 || r.HostMemory != 0 || r.Count == 0 {
				return fmt.Errorf("%w: claim %d asks for %d GPUs and for the host", ErrRequest, i, r.Count)
			}
		}
	}
	return nil
}

// PodChoices begins the search for a pod among some nodes; nil is all. Nodes on which claims get what they want more come
// before others. The error is [ErrRequest].
func (inv *Inventory) PodChoices(p *Pod, among *NodeSet) (*Choices, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if r, ok := p.one(); ok {
		return inv.Choices(r, among)
	}
	s := &Choices{inv: inv, among: among, pod: inv.podShape(p), changes: inv.changes()}
	s.all()
	return s, nil
}

func (inv *Inventory) podShape(p *Pod) *podShape {
	pod := &podShape{bonds: p.Bonds, cpu: p.CPU, memory: p.HostMemory}
	for _, claim := range p.Claims {
		var all []*shape
		for _, r := range claim {
			all = append(all, inv.shape(r))
		}
		pod.shapes = append(pod.shapes, all)
	}
	return pod
}

// puzzle is the search for a place of each claim on one node. What it has placed so far is given in the node, so that
// whatever decides about the next claim sees it, and is taken back at the end.
type puzzle struct {
	inv    *Inventory
	pod    *podShape
	node   int
	shares []Share
	tries  int
	// spare is what all nodes of a question have together beside their own tries, see mostTries; nil is no bound.
	spare *int
	// broken tells that ways were left untried.
	broken bool
	// chosen has the alternative of each claim.
	chosen [MostClaims]int
	// able has a bit for each alternative of a claim that fits on the node without the others.
	able [MostClaims]uint8
}

// ratePod is the key of a pod on a node, untried where no place was found and not every way was tried; spare is as in puzzle.
func (inv *Inventory) ratePod(p *podShape, node int, spare *int) uint64 {
	key := uint64(noKey)
	broken := inv.solve(p, node, spare, func(z *puzzle, before *state) {
		key = z.key(before)
	})
	if broken && key == noKey {
		return untried
	}
	return key
}

// placePod makes the assignment of a pod on a node on which it fits.
func (inv *Inventory) placePod(p *podShape, node int) Assignment {
	a := Assignment{Node: node, Name: inv.nodes[node].Name, CPU: p.cpu, Memory: p.memory, group: p.shapes[0][0].group}
	inv.solve(p, node, nil, func(z *puzzle, _ *state) { a.Shares = append(a.Shares, z.shares...) })
	return a
}

// solve calls found while the claims of a pod are placed on a node, if they fit, and leaves the node as it was. It reports whether
// ways were left untried.
func (inv *Inventory) solve(p *podShape, node int, spare *int, found func(z *puzzle, before *state)) (broken bool) {
	r, n := &inv.entries[node], &inv.nodes[node]
	if !inv.mayFitPod(p, node) {
		return false
	}
	before := *r
	z := &puzzle{inv: inv, pod: p, node: node, spare: spare}
	n.CPUUsed += p.cpu
	n.MemoryUsed += p.memory
	r.refresh(n)
	if z.alone() {
		z.choose(0, func() { found(z, &before.state) })
	}
	n.CPUUsed -= p.cpu
	n.MemoryUsed -= p.memory
	*r = before
	return z.broken
}

// alone looks which alternatives fit without the others, and reports whether each claim has one. Without it, the tries
// would be spent on the places of other claims beside an alternative that fits with none.
func (z *puzzle) alone() bool {
	for i, claim := range z.pod.shapes {
		for alternative, c := range claim {
			if _, cause := z.inv.arrange(c, z.node); cause == CauseNone {
				z.able[i] |= 1 << alternative
			}
		}
		if z.able[i] == 0 {
			return false
		}
	}
	return true
}

// choose tries the alternatives of the claims from one on, in the order of lists of them: the first claim's first as long
// as anything fits with it.
func (z *puzzle) choose(i int, found func()) bool {
	if i == len(z.pod.shapes) {
		return z.claim(0, found)
	}
	for alternative := range z.pod.shapes[i] {
		if z.able[i]&(1<<alternative) == 0 {
			continue
		}
		z.chosen[i] = alternative
		if z.choose(i+1, found) {
			return true
		}
		if z.broken { // nothing is tried any more, and there may be as many choices as 8 to the power of 32
			return false
		}
	}
	return false
}

// claim places the claims from one on, each with its chosen alternative. It reports whether they fit.
func (z *puzzle) claim(i int, found func()) bool {
	if i == len(z.pod.shapes) {
		found()
		return true
	}
	return z.sets(i, z.barred(i), found)
}

// sets tries the sets of GPUs for a claim, without some: first the best, then those without one GPU of it.
func (z *puzzle) sets(i int, without uint32, found func()) bool {
	if z.tries++; z.tries > triesPerNode || z.spent() {
		z.broken = true
		return false
	}
	inv, alternative := z.inv, z.chosen[i]
	c := z.pod.shapes[i][alternative]
	looked := inv.looked
	a, cause := inv.arrangeWithout(c, z.node, without)
	z.spend(inv.looked - looked)
	if cause != CauseNone {
		return false
	}
	chosen := inv.assignment(c, uint64(z.node), &a)
	if z.give(chosen.Shares, i, alternative) {
		done := z.claim(i+1, found)
		z.takeBack(len(chosen.Shares))
		if done {
			return true
		}
	}
	tried := uint32(0)
	for _, gpu := range a.gpus[:c.request.Count] {
		if tried&(1<<gpu) == 0 && i+1 < len(z.pod.shapes) {
			tried |= 1 << gpu
			if z.sets(i, without|1<<gpu, found) {
				return true
			}
		}
	}
	return false
}

// give counts shares in the node. It reports false, and counts none, where they do not fit after all.
func (z *puzzle) give(shares []Share, claim, alternative int) bool {
	n := &z.inv.nodes[z.node]
	for i, s := range shares {
		s.Claim, s.Alternative = claim, alternative
		placed := z.inv.instance(z.node, s.GPU, &s)
		if n.misfit(&s, s.GPU, placed) != "" {
			z.takeBack(i)
			return false
		}
		n.give(&s, s.GPU, placed)
		z.shares = append(z.shares, s)
	}
	z.inv.entries[z.node].refresh(n)
	return true
}

// takeBack undoes the last shares that give counted.
func (z *puzzle) takeBack(count int) {
	n := &z.inv.nodes[z.node]
	for range count {
		s := &z.shares[len(z.shares)-1]
		n.takeBack(s, s.GPU, s.Profile != "")
		z.shares = z.shares[:len(z.shares)-1]
	}
	z.inv.entries[z.node].refresh(n)
}

// alternativeRanks is how many ranks of preference there are for each alternative.
const alternativeRanks = 8

// key is that of a pod whose claims are placed: by the alternatives, the GPUs that are wanted, and the policy.
func (z *puzzle) key(before *state) uint64 {
	inv := z.inv
	inv.after = inv.entries[z.node].state
	inv.option = option{inv: inv, shape: z.pod.shapes[0][0], node: z.node, before: before, after: &inv.after, gpu: z.shares[0].GPU}
	alternatives, rank := 0, uint8(0)
	last := -1
	for i := range z.shares {
		s := &z.shares[i]
		rank = max(rank, z.pod.shapes[s.Claim][s.Alternative].needs[before.kind][s.GPU].rank)
		if s.Claim != last {
			alternatives, last = alternatives+s.Alternative, s.Claim
		}
	}
	if alternatives > 0 || z.alternatives() {
		rank = uint8(min(mostRank-1, alternatives*alternativeRanks+int(min(rank, alternativeRanks-1))))
	}
	inv.option.rank = rank
	return inv.policy.key(&inv.option)
}

// alternatives reports whether a claim of the pod has more than one.
func (z *puzzle) alternatives() bool {
	for _, claim := range z.pod.shapes {
		if len(claim) > 1 {
			return true
		}
	}
	return false
}

// podRefusal says why a pod fits nowhere: by the first claim of which nothing fits, else that not all fit together.
func (inv *Inventory) podRefusal(p *podShape, among *NodeSet) *Refusal {
	for _, claim := range p.shapes {
		fits := false
		for _, c := range claim {
			for node := range inv.nodes {
				if among != nil && !among.Has(node) {
					continue
				}
				_, cause := inv.arrange(c, node)
				if fits = cause == CauseNone; fits {
					break
				}
			}
			if fits {
				break
			}
		}
		if !fits {
			return inv.refusalAmong(claim[0], among)
		}
	}
	return refuse(ReasonFull, "each of the pod's %d claims fits on some node, but no node has room for all of them and for the pod", len(p.shapes))
}

// ObservePod tells the policy that a pod has arrived, see [Inventory.Observe]. Of a pod with several claims it learns
// those of each claim that are wanted most.
func (inv *Inventory) ObservePod(p *Pod) {
	if r, ok := p.one(); ok {
		inv.Observe(r)
		return
	}
	for i, claim := range p.Claims {
		if len(claim) == 0 {
			continue
		}
		r := claim[0]
		// The host's part goes to the first, as the model knows single requests alone.
		if i == 0 {
			r.CPU, r.HostMemory = cmp.Or(r.CPU, p.CPU), cmp.Or(r.HostMemory, p.HostMemory)
		}
		inv.Observe(r)
	}
}
