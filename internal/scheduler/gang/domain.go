package gang

import (
	"cmp"
	"slices"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// domain is nodes that members are to be kept on.
type domain struct {
	// path says which, such as rack=r7; it is empty for all nodes.
	path string
	// nodes are their positions, and set is the same; nil is all.
	nodes []int
	set   *alloc.NodeSet
	sets  map[*alloc.NodeSet]*alloc.NodeSet
	// up is the domain of which it is a part, by a level that is required or not.
	up       *domain
	required bool
	// without tells that the nodes do not have the label.
	without bool
	// held is how many members are there already, room how many of each group it has room for, as far as sums tell, most how
	// many of those that are left, and idle how many of its GPUs have no tenants.
	held, most, idle int
	room             map[*group]int
}

// root is the domain of all nodes.
func (p *planner) root() (*domain, *Refusal) {
	d := &domain{}
	for node := range p.inv.Len() {
		d.nodes = append(d.nodes, node)
	}
	return d, p.scattered()
}

// among is the set of the nodes of a domain on which a group's members may be; nil is all.
func (p *planner) among(d *domain, g *group) *alloc.NodeSet {
	switch {
	case d.set == nil:
		return g.among
	case g.among == nil:
		return d.set
	}
	if d.sets[g.among] == nil {
		both := &alloc.NodeSet{}
		for _, node := range d.nodes {
			if g.among.Has(node) {
				both.Add(node)
			}
		}
		if d.sets == nil {
			d.sets = map[*alloc.NodeSet]*alloc.NodeSet{}
		}
		d.sets[g.among] = both
	}
	return d.sets[g.among]
}

// split divides a domain by the values of a label. A required label without a value rules a node out. Where it is required
// and members have places, the domains are those in which they are.
func (p *planner) split(d *domain, level Level) (children []*domain) {
	by := map[string]*domain{}
	for _, node := range d.nodes {
		key, ok := p.key(node, level)
		if !ok && level.Required {
			continue
		}
		child := by[key]
		if child == nil {
			child = &domain{path: key, set: &alloc.NodeSet{}, without: !ok, up: d, required: level.Required}
			if d.path != "" {
				child.path = d.path + ", " + key
			}
			by[key] = child
			children = append(children, child)
		}
		child.nodes = append(child.nodes, node)
		child.set.Add(node)
	}
	occupied := false
	occupy := func(node int) {
		key, _ := p.key(node, level)
		if child := by[key]; child != nil && child.set.Has(node) {
			child.held++
			occupied = true
		}
	}
	for i := range p.held {
		occupy(p.position(&p.held[i]))
	}
	for i := range p.taken {
		occupy(p.taken[i].assignment.Node)
	}
	if occupied && level.Required {
		children = slices.DeleteFunc(children, func(d *domain) bool { return d.held == 0 })
	}
	return children
}

// key tells domains of a level apart.
func (p *planner) key(node int, level Level) (string, bool) {
	value, ok := p.label(node, level.Label)
	if !ok {
		return "no " + level.Label, false
	}
	return level.Label + "=" + value, true
}

// compare is the order in which domains are tried for so many members that are left: those that have members already,
// then those that have room for all, the tightest first, then the others, the one with the most room first if partly is
// set. Nodes without the label come last.
func (d *domain) compare(other *domain, left int, partly bool) int {
	first := func(is, other bool) int {
		switch {
		case is == other:
			return 0
		case is:
			return -1
		}
		return 1
	}
	order := cmp.Or(first(other.without, d.without), first(d.held > 0, other.held > 0), first(d.most >= left, other.most >= left))
	if order == 0 && partly && d.most < left {
		order = cmp.Compare(other.most, d.most)
	}
	return cmp.Or(order, cmp.Compare(d.idle, other.idle), cmp.Compare(d.path, other.path))
}

// measure computes what domains have room for.
func (p *planner) measure(children []*domain) {
	for _, d := range children {
		d.room, d.idle = map[*group]int{}, p.idle(d)
		for _, g := range p.groups {
			room := 0
			for _, node := range d.nodes {
				if room >= g.left {
					break
				}
				if g.among == nil || g.among.Has(node) {
					room += g.room(node, g.left-room)
				}
			}
			d.room[g] = room
		}
	}
	p.sum(children)
}

// sum computes for how many of those that are left domains have room.
func (p *planner) sum(children []*domain) {
	for _, d := range children {
		d.most = 0
		for _, g := range p.groups {
			d.most += min(g.left, d.room[g])
		}
	}
}

// idle is how many GPUs of a domain have no tenants.
func (p *planner) idle(d *domain) (idle int) {
	for _, node := range d.nodes {
		n := p.inv.Node(node)
		for i := range n.GPUs {
			if n.GPUs[i].Tenants == 0 {
				idle++
			}
		}
	}
	return idle
}
