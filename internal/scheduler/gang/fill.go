package gang

import (
	"cmp"
	"slices"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// mostFound is how many domains that have room for all members are compared.
const mostFound = 6

// left is how many members have no place.
func (p *planner) left() int { return len(p.waiting) - len(p.taken) }

// fill places as many members as it can in a domain, kept together by levels.
func (p *planner) fill(d *domain, levels []Level) {
	if len(levels) == 0 {
		p.pour(d)
		return
	}
	children := p.split(d, levels[0])
	if p.intoOne(children, levels) || levels[0].Required {
		return
	}
	p.intoSeveral(children, levels[1:])
}

// intoOne puts all members that are left into one domain, the one that leaves the best rest, and reports whether they are.
// Where that is required and none has room for all, it puts as many as it can into one.
func (p *planner) intoOne(children []*domain, levels []Level) bool {
	first, left := len(p.taken), p.left()
	p.measure(children)
	slices.SortStableFunc(children, func(a, b *domain) int { return a.compare(b, left, levels[0].Required) })
	var best []taken
	var bestWhere *domain
	var bestScore score
	if len(children) > 0 {
		bestWhere = children[0]
	}
	for found := 0; found < mostFound && len(children) > 0; children = children[1:] {
		d := children[0]
		if d.most < left && (!levels[0].Required || d.most <= len(best)) || p.steps > mostSteps && best != nil {
			continue
		}
		p.fill(d, levels[1:])
		placed := p.taken[first:]
		if s := p.score(d, placed); best == nil || s.compare(bestScore) < 0 {
			best, bestScore, bestWhere = slices.Clone(placed), s, p.where
		}
		if len(placed) == left {
			found++
		}
		p.undo(first)
	}
	if len(best) == left || levels[0].Required {
		p.again(best)
		p.where = bestWhere
	}
	return p.left() == 0
}

// intoSeveral fills one domain after the other: the one with the least room among those that have room for all that are
// left, else the one with the most.
func (p *planner) intoSeveral(children []*domain, levels []Level) {
	for len(children) > 0 && p.left() > 0 {
		p.sum(children)
		left := p.left()
		d := slices.MinFunc(children, func(a, b *domain) int { return a.compare(b, left, true) })
		children = slices.DeleteFunc(children, func(other *domain) bool { return other == d })
		p.fill(d, levels)
	}
}

// batch is members of a group.
type batch struct {
	group   *group
	members []int
}

// pour places as many members as it can on the nodes of a domain: it tries orders of groups, and then all numbers of
// members on each node.
func (p *planner) pour(d *domain) {
	first := len(p.taken)
	var best []taken
	for _, order := range p.orders() {
		p.pourGroups(d, order)
		if p.left() == 0 {
			return
		}
		if placed := p.taken[first:]; best == nil || len(placed) > len(best) {
			best = slices.Clone(placed)
		}
		p.undo(first)
		if p.steps > mostSteps {
			break
		}
	}
	if p.exact(d); len(p.taken)-first < len(best) {
		p.undo(first)
		p.again(best)
	}
}

func (p *planner) pourGroups(d *domain, order []batch) {
	p.where = d
	for _, b := range order {
		p.pourGroup(d, d, b)
	}
}

// pourGroup gives members that ask the same the best places in a part of a domain, one after the other. If one that is let
// everywhere finds none, neither do the others; if one is let nowhere, neither are those that are alike.
func (p *planner) pourGroup(d, part *domain, b batch) {
	choices, err := p.choices(b.group, p.among(part, b.group))
	if err != nil {
		return
	}
	p.steps += len(part.nodes) / nodesPerStep
	nowhere := map[string]bool{}
	for _, member := range b.members {
		if p.placed[member] || nowhere[p.waiting[member].Alike] {
			continue
		}
		var refused []int
		found := false
		for a, ok := choices.Next(); ok; a, ok = choices.Next() {
			p.steps++
			if !p.lets(&p.waiting[member], a.Node) {
				refused = append(refused, a.Node)
				continue
			}
			found = p.take(taken{group: b.group, member: member, assignment: a, where: d, opened: p.opened(&a), rank: choices.Rank()})
			choices.Again(a.Node)
			if found {
				break
			}
		}
		for _, node := range refused {
			choices.Again(node)
		}
		if !found && len(refused) == 0 {
			return
		}
		if alike := p.waiting[member].Alike; !found && alike != "" {
			nowhere[alike] = true
		}
	}
}

// lets reports whether something else lets a member onto a node, beside those that have places.
func (p *planner) lets(m *Member, node int) bool {
	return (m.Lets == nil || m.Lets(node)) && (m.Beside == nil || m.Beside(node, p.beside))
}

func (p *planner) choices(g *group, among *alloc.NodeSet) (*alloc.Choices, error) {
	if p.policy {
		return p.inv.PodChoices(g.pod, among)
	}
	return p.inv.TightChoices(g.pod, among)
}

// opened is how many GPUs of an assignment have no tenants.
func (p *planner) opened(a *alloc.Assignment) (opened int) {
	n := p.inv.Node(a.Node)
	for i := range a.Shares {
		if n.GPUs[a.Shares[i].GPU].Tenants == 0 {
			opened++
		}
	}
	return opened
}

// score says how good it is to have placed members in a domain.
type score struct {
	// placed is their number; values are how many values each preferred level has.
	placed int
	values []int
	// rank is how little the GPUs are wanted, opened how many of them had no tenants, idle how many the domain had.
	rank, opened, idle int
}

func (p *planner) score(d *domain, placed []taken) score {
	s := score{placed: len(placed), idle: d.idle, values: p.values()}
	for i := range placed {
		s.rank += placed[i].rank
		s.opened += placed[i].opened
	}
	return s
}

// compare is negative where s is better than t.
func (s *score) compare(t score) int {
	return cmp.Or(cmp.Compare(t.placed, s.placed), slices.Compare(s.values, t.values), cmp.Compare(s.rank, t.rank),
		cmp.Compare(s.opened, t.opened), cmp.Compare(s.idle-s.opened, t.idle-t.opened))
}

// values is how many values of each preferred level the nodes of all members have.
func (p *planner) values() []int {
	var counts []int
	for _, level := range p.gang.Topology {
		if level.Required {
			continue
		}
		seen, without := map[string]bool{}, 0
		for i := range p.taken {
			if value, ok := p.label(p.taken[i].assignment.Node, level.Label); ok {
				seen[value] = true
			} else {
				without++
			}
		}
		for i := range p.held {
			if value, ok := p.label(p.position(&p.held[i]), level.Label); ok {
				seen[value] = true
			}
		}
		counts = append(counts, len(seen)+without)
	}
	return counts
}

// label is the value of a node's label.
func (p *planner) label(node int, label string) (string, bool) {
	if node < 0 || p.nodes == nil {
		return "", false
	}
	return p.nodes.Label(node, label)
}

// position is that of an assignment's node, -1 of one that has gone.
func (p *planner) position(a *alloc.Assignment) int {
	if at, ok := p.inv.Position(a.Name); ok {
		return at
	}
	return -1
}
