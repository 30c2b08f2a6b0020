package gang

import (
	"cmp"
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

// orders are those in which groups are tried.
func (p *planner) orders() [][]*group {
	orders := [][]*group{p.groups}
	if len(p.groups) == 1 {
		return orders
	}
	add := func(compare func(a, b *group) int) {
		order := slices.Clone(p.groups)
		slices.SortStableFunc(order, compare)
		if !slices.ContainsFunc(orders, func(o []*group) bool { return slices.Equal(o, order) }) {
			orders = append(orders, order)
		}
	}
	add(func(a, b *group) int { return a.size.largest(&b.size) })
	add(func(a, b *group) int { return cmp.Or(cmp.Compare(b.size.whole, a.size.whole), a.size.largest(&b.size)) })
	add(func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.size.amount, a.size.amount), a.size.largest(&b.size))
	})
	add(func(a, b *group) int { return cmp.Compare(b.size.cpu, a.size.cpu) })
	if p.need < len(p.waiting) {
		add(func(a, b *group) int { return b.size.largest(&a.size) })
	}
	return orders
}
