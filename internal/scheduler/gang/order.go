package gang

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// size is how much a pod asks for, for orders alone.
type size struct {
	whole  int    // whole GPUs
	gpus   int    // GPUs
	amount uint64 // the greatest of the shares in memory and cores, in thousandths, over all GPUs
	cpu    int64
}

func sizeOf(p *alloc.Pod) (s size) {
	s.cpu = p.CPU
	for _, claim := range p.Claims {
		r := &claim[0]
		s.gpus += r.Count
		if r.Whole {
			s.whole += r.Count
		}
		const one = 80 << 30 // what a percentage is of does not matter much
		part := max(r.Memory.Of(one)*1000/one, uint64(r.Cores)*10)
		if r.Whole {
			part = 1000
		}
		s.amount += part * uint64(r.Count)
	}
	return s
}

func (s *size) largest(t *size) int {
	return cmp.Or(cmp.Compare(t.gpus, s.gpus), cmp.Compare(t.amount, s.amount), cmp.Compare(t.cpu, s.cpu))
}

// sortGroups puts groups into an order that does not depend on that of the members, so that neither does what fits: first
// those that ask for most.
func (p *planner) sortGroups() {
	if len(p.groups) == 1 {
		return
	}
	for _, g := range p.groups {
		g.text = fmt.Sprint(*g.pod)
	}
	slices.SortStableFunc(p.groups, func(a, b *group) int { return cmp.Or(a.size.largest(&b.size), cmp.Compare(a.text, b.text)) })
}

// orders are those in which the members that are left are tried.
func (p *planner) orders() (orders [][]batch) {
	var groups []*group
	for _, g := range p.groups {
		if g.left > 0 {
			groups = append(groups, g)
		}
	}
	var tried [][]*group
	add := func(compare func(a, b *group) int) {
		order := slices.Clone(groups)
		slices.SortStableFunc(order, compare)
		if !slices.ContainsFunc(tried, func(o []*group) bool { return slices.Equal(o, order) }) {
			tried = append(tried, order)
		}
	}
	add(func(*group, *group) int { return 0 })
	add(func(a, b *group) int { return cmp.Or(cmp.Compare(b.size.whole, a.size.whole), a.size.largest(&b.size)) })
	add(func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.size.amount, a.size.amount), a.size.largest(&b.size))
	})
	add(func(a, b *group) int { return cmp.Compare(b.size.cpu, a.size.cpu) })
	if p.need < len(p.waiting) {
		add(func(a, b *group) int { return b.size.largest(&a.size) })
	}
	for _, groups := range tried {
		var order []batch
		for _, g := range groups {
			order = append(order, batch{group: g, members: g.members})
		}
		orders = append(orders, order)
	}
	return orders
}
