package queue

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Order is the workloads that wait, in the order in which they are to be tried: the queue first that uses least of its
// entitlement, and inside it by priority, then age. Opportunistic ones come last. The book must not change meanwhile: after
// one has started, the order begins anew.
func (b *Book) Order() iter.Seq[string] {
	return func(yield func(string) bool) {
		leaves := b.lines(Top, nil)
		for _, last := range []bool{false, true} {
			for _, n := range leaves {
				for _, e := range b.waiting[n] {
					if (e.Quota == v1alpha1.QuotaOpportunistic) == last && !yield(e.ID) {
						return
					}
				}
			}
		}
	}
}

// lines are the queues below one in which workloads wait, in order.
func (b *Book) lines(n Node, lines []Node) []Node {
	if b.many[n] == 0 {
		return lines
	}
	parts := b.tree.nodes[n].parts
	if len(parts) == 0 {
		return append(lines, n)
	}
	waiting := make([]Node, 0, len(parts))
	for _, part := range parts {
		if b.many[part] > 0 {
			waiting = append(waiting, part)
		}
	}
	use := make(map[Node]fraction, len(waiting))
	for _, part := range waiting {
		use[part] = b.dominant(part)
	}
	slices.SortFunc(waiting, func(x, y Node) int {
		return cmp.Or(use[x].compare(use[y]), strings.Compare(b.tree.nodes[x].name, b.tree.nodes[y].name))
	})
	for _, part := range waiting {
		lines = b.lines(part, lines)
	}
	return lines
}

// fraction is what is used of an entitlement.
type fraction struct{ used, entitled int64 }

func (f fraction) compare(g fraction) int {
	if f.entitled == 0 && g.entitled == 0 {
		return cmp.Compare(f.used, g.used)
	}
	return compareProducts(f.used, g.entitled, g.used, f.entitled)
}

// dominant is the dimension of which a queue uses most of its entitlement.
func (b *Book) dominant(n Node) fraction {
	most := fraction{0, 1}
	for d := range b.shares {
		if f := (fraction{b.used[d][n], b.current(d).entitled[n]}); f.used > 0 && f.compare(most) > 0 {
			most = f
		}
	}
	return most
}

// Place is how many workloads of its queue are to be tried before one that waits, and how many wait there. It reports false
// for one that does not wait.
func (b *Book) Place(id string) (ahead, all int, ok bool) {
	e := b.entries[id]
	if e == nil || e.runs {
		return 0, 0, false
	}
	line := b.waiting[e.node]
	ahead, ok = slices.BinarySearchFunc(line, e, before)
	return ahead, len(line), ok
}
