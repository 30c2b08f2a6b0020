package gang

import (
	"cmp"
	"slices"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Place plans all members of a gang that have no place yet, or refuses all of them. It reserves nothing: what it tries
// leaves no trace in the inventory. The inventory must not change meanwhile.
//
// Members get places in the order of the inventory's policy. Where not all fit so, Place tries them in other orders, in
// the end those first that ask for most. It does not try all orders: it may refuse a gang of members that differ although
// some order fits.
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
	var best attempt
	for _, order := range p.orders() {
		p.groups = order
		p.fill(root, g.Topology)
		if len(p.taken) > len(best.taken) || best.taken == nil {
			best = p.attempt()
		}
		done := len(p.taken) == len(p.waiting)
		p.undo(0)
		if done || p.steps > mostSteps {
			break
		}
	}
	if len(best.taken) < p.need {
		return Plan{}, p.refuse(&best)
	}
	return p.plan(&best), nil
}

// mostSteps bounds the work: after so many trial reservations, no other order or domain is tried.
const mostSteps = 1 << 14

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
	// taken is what is reserved on trial, the newest last.
	taken []taken
	steps int
	// where is the domain in which the last pour was.
	where *domain
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
}

// taken is a trial reservation.
type taken struct {
	group      *group
	member     int
	assignment alloc.Assignment
	// opened is how many GPUs had no tenants before.
	opened, rank int
}

// attempt is how far a search came.
type attempt struct {
	taken []taken
	where *domain
}

func newPlanner(inv *alloc.Inventory, g Gang, members []Member, nodes Nodes) (*planner, *Refusal) {
	p := &planner{inv: inv, gang: &g, nodes: nodes}
	for i := range members {
		if members[i].Placed != nil {
			p.held = append(p.held, *members[i].Placed)
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
	p.steps++
	if err := p.inv.Reserve(t.assignment); err != nil {
		return false
	}
	p.setAside(t.assignment)
	p.taken = append(p.taken, t)
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
}

// again reserves what was taken back.
func (p *planner) again(old []taken) {
	for _, t := range old {
		p.take(t)
	}
}

// attempt notes how far the search has come.
func (p *planner) attempt() attempt {
	return attempt{taken: append([]taken{}, p.taken...), where: p.where}
}

func (p *planner) plan(best *attempt) Plan {
	var plan Plan
	placed := make([]bool, len(p.waiting))
	for _, t := range best.taken {
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
