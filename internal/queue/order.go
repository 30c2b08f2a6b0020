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
		_ = b.walk(Top, false, yield) && b.walk(Top, true, yield)
	}
}

// walk goes through the workloads that wait below a queue: those with opportunistic quota, or all others.
func (b *Book) walk(n Node, opportunistic bool, yield func(string) bool) bool {
	if b.many[n] == 0 {
		return true
	}
	parts := b.tree.nodes[n].parts
	for _, e := range b.waiting[n] { // only queues without parts have any
		if (e.Quota == v1alpha1.QuotaOpportunistic) == opportunistic && !yield(e.ID) {
			return false
		}
	}
	type share struct {
		node Node
		use  fraction
	}
	waiting := make([]share, 0, len(parts))
	for _, part := range parts {
		if b.many[part] > 0 {
			waiting = append(waiting, share{part, b.dominant(part)})
		}
	}
	slices.SortFunc(waiting, func(x, y share) int {
		return cmp.Or(x.use.compare(y.use), strings.Compare(b.tree.nodes[x.node].name, b.tree.nodes[y.node].name))
	})
	for _, w := range waiting {
		if !b.walk(w.node, opportunistic, yield) {
			return false
		}
	}
	return true
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
