package gang

import (
	"cmp"
	"slices"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Place plans all members of a gang that have no place yet, or refuses all of them. It reserves nothing: what it tries
// leaves no trace in the inventory. The inventory must not change meanwhile.
//
// First it finds out which domain has room, with the tightest places: those members first that ask for most, then other
// orders, and in the end all numbers of members on each node. Then members get places in that domain
// in the order of the inventory's policy, if all fit so. A gang whose members differ may be refused although it fits, if
// finding that out takes too much work.
func Place(inv *alloc.Inventory, g Gang, members []Member, nodes Nodes) (Plan, *Refusal) {
	p, refusal := newPlanner(inv, g, members, nodes)
	if refusal != nil || len(p.waiting) == 0 {
		return Plan{}, refusal
	}
	defer p.end()
	p.begin()
	root, refusal := p.root()
	if refusal != nil {
		return Plan{}, refusal
	}
	p.fill(root, g.Topology)
	if len(p.taken) < p.need {
		return Plan{}, p.refuse()
	}
	p.refine()
	return p.plan(), nil
}

// mostSteps bounds the work: after so many trial reservations, no other order or domain is tried. To look at the nodes of a
// domain costs a step for every nodesPerStep. mostWork bounds exact searches, in sums, and mostKeys how many places the
// policy is asked about for the first of each group: that takes up to 50 microseconds each.
const (
	mostSteps    = 1 << 14
	nodesPerStep = 8
	mostWork     = 1 << 24
	mostKeys     = 1 << 13
)

// planner is the search for a plan.
type planner struct {
	inv   *alloc.Inventory
	gang  *Gang
	nodes Nodes
	// waiting are the members to place, placed tells which of them have a place on trial, held is what the others have.
	waiting []Member
	placed  []bool
	held    []alloc.Assignment
	// need is how many of those that wait must be placed.
	need   int
	groups []*group
	// taken is what is reserved on trial, the newest last, and beside are those members after those that have places.
	taken  []taken
	beside []Neighbour
	steps  int
	work   int
	// where is the domain in which the last pour was.
	where *domain
	// policy tells that places are chosen by the policy, not the tightest.
	policy bool
}

// group is members that wait, ask the same and may be on the same nodes.
type group struct {
	pod   *alloc.Pod
	among *alloc.NodeSet
	// members are positions in waiting, and left is how many of them have no place.
	members []int
	left    int
	room    func(node, most int) int
	size    size
	text    string // of the pod, for sortGroups
}

// taken is a trial reservation.
type taken struct {
	group      *group
	member     int
	assignment alloc.Assignment
	where      *domain
	// opened is how many GPUs had no tenants before.
	opened, rank int
}

func newPlanner(inv *alloc.Inventory, g Gang, members []Member, nodes Nodes) (*planner, *Refusal) {
	p := &planner{inv: inv, gang: &g, nodes: nodes}
	for i := range members {
		if members[i].Placed != nil {
			p.held = append(p.held, *members[i].Placed)
			p.beside = append(p.beside, Neighbour{members[i].Key, p.position(members[i].Placed)})
		} else {
			p.waiting = append(p.waiting, members[i])
		}
	}
	p.need = max(1, g.Minimum-len(p.held))
	if len(p.waiting) > 0 && p.need > len(p.waiting) {
		return nil, p.incomplete()
	}
	p.placed = make([]bool, len(p.waiting))
	for i := range p.waiting {
		if refusal := p.join(i); refusal != nil {
			return nil, refusal
		}
	}
	p.sortGroups()
	return p, nil
}

// join puts a member into the group of those that ask the same.
func (p *planner) join(i int) *Refusal {
	m := &p.waiting[i]
	for _, g := range p.groups {
		if g.among == m.Among && samePods(g.pod, &m.Pod) {
			g.members = append(g.members, i)
			g.left++
			return nil
		}
	}
	room, err := p.inv.Room(&m.Pod, !p.gang.ShareGPUs)
	if err != nil {
		return p.invalid(m, err)
	}
	p.groups = append(p.groups, &group{pod: &m.Pod, among: m.Among, members: []int{i}, left: 1, room: room, size: sizeOf(&m.Pod)})
	return nil
}

func samePods(a, b *alloc.Pod) bool {
	return a.CPU == b.CPU && a.HostMemory == b.HostMemory && slices.EqualFunc(a.Claims, b.Claims, slices.Equal[[]alloc.Request])
}

// begin keeps the GPUs of members that have places from the others.
func (p *planner) begin() {
	for i := range p.held {
		p.setAside(p.held[i])
	}
}

// end leaves the inventory as it was.
func (p *planner) end() {
	p.undo(0)
	for i := range p.held {
		p.putBack(p.held[i])
	}
}

func (p *planner) setAside(a alloc.Assignment) {
	if !p.gang.ShareGPUs {
		p.inv.SetAside(a)
	}
}

func (p *planner) putBack(a alloc.Assignment) {
	if !p.gang.ShareGPUs {
		p.inv.PutBack(a)
	}
}

// take reserves on trial. It reports false where that does not fit after all.
func (p *planner) take(t taken) bool {
	if err := p.inv.Reserve(t.assignment); err != nil {
		return false
	}
	p.setAside(t.assignment)
	p.taken = append(p.taken, t)
	p.beside = append(p.beside, Neighbour{p.waiting[t.member].Key, t.assignment.Node})
	p.placed[t.member] = true
	t.group.left--
	return true
}

// undo takes back all trial reservations but the first ones.
func (p *planner) undo(first int) {
	for i := len(p.taken) - 1; i >= first; i-- {
		t := &p.taken[i]
		p.putBack(t.assignment)
		p.inv.Unreserve(t.assignment)
		p.placed[t.member] = false
		t.group.left++
	}
	p.taken = p.taken[:first]
	p.beside = p.beside[:len(p.held)+first]
}

// again reserves what was taken back.
func (p *planner) again(old []taken) {
	for _, t := range old {
		p.take(t)
	}
}

// refine gives the members of each domain the places there that the policy chooses, if all fit so and that is not too much
// work.
func (p *planner) refine() {
	old := slices.Clone(p.taken)
	p.undo(0)
	p.policy = true
	keys := 0
	for len(old) > 0 {
		here := len(old)
		for i := range old {
			if old[i].where != old[0].where {
				here = i
				break
			}
		}
		first, d, order := len(p.taken), old[0].where, sameOrder(old[:here])
		if keys += len(order) * len(d.nodes); keys <= mostKeys {
			p.pourGroups(d, order)
		}
		if len(p.taken)-first < here {
			p.undo(first)
			p.again(old[:here])
		}
		old = old[here:]
	}
}

// sameOrder are the members of reservations by group, in their order.
func sameOrder(old []taken) (order []batch) {
	for i := range old {
		at := slices.IndexFunc(order, func(b batch) bool { return b.group == old[i].group })
		if at < 0 {
			at = len(order)
			order = append(order, batch{group: old[i].group})
		}
		order[at].members = append(order[at].members, old[i].member)
	}
	return order
}

func (p *planner) plan() Plan {
	var plan Plan
	placed := make([]bool, len(p.waiting))
	for _, t := range p.taken {
		placed[t.member] = true
		plan.Placements = append(plan.Placements, Placement{Member: p.waiting[t.member], Assignment: t.assignment})
	}
	slices.SortStableFunc(plan.Placements, func(a, b Placement) int { return cmp.Compare(a.Member.Key, b.Member.Key) })
	for i := range p.waiting {
		if !placed[i] {
			plan.Left = append(plan.Left, p.waiting[i])
		}
	}
	return plan
}
