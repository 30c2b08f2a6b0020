package reclaim

import (
	"cmp"
	"math"
	"slices"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue"
)

// possible reports whether the demander fits if all end that may, and more than may of queues that would fall below their
// entitlements. Where it does not, nothing helps.
func (t *trial) possible() bool {
	t.takeAll()
	fits := t.lawful() && t.alone()
	t.restore()
	return fits
}

func (t *trial) takeAll() {
	for i := range t.candidates {
		if t.rules[i] != "" {
			t.take(t.whole(i))
		}
	}
}

// restore gives everything back and returns what it was.
func (t *trial) restore() (items []item) {
	for len(t.items) > 0 {
		items = append(items, t.giveBack(len(t.items)-1))
	}
	slices.Reverse(items)
	return items
}

// retake takes what was given back, what is small first, and reports false where not all of that may end.
func (t *trial) retake(items []item) bool {
	items = slices.Clone(items)
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(len(a.members), len(b.members)) })
	for len(items) > 0 {
		at := slices.IndexFunc(items, t.try)
		if at < 0 {
			return false
		}
		items = slices.Delete(items, at, at+1)
	}
	return true
}

// try takes what may end: of a gang that ends as a whole, the members above its minimum first, one after the other.
func (t *trial) try(it item) bool {
	first, c := len(t.items), &t.candidates[it.candidate]
	for it.whole && t.left[it.candidate] > c.Minimum {
		one := t.first(it.candidate)
		if !t.ran(c, one.members) {
			break // they end with their gang alone
		}
		if !t.allowed(one) {
			t.undo(first)
			return false
		}
		t.take(one)
	}
	if it.whole {
		it = t.whole(it.candidate)
	}
	if !t.allowed(it) {
		t.undo(first)
		return false
	}
	t.take(it)
	return true
}

// undo gives back all but the first items.
func (t *trial) undo(first int) {
	for len(t.items) > first {
		t.giveBack(len(t.items) - 1)
	}
}

// obey takes workloads below the queues whose limits the demander would exceed.
func (t *trial) obey() bool {
	for !t.lawful() {
		best := -1
		for i := range t.candidates {
			if t.rules[i] == "" || t.left[i] == 0 || best >= 0 && t.rank[best] < t.rank[i] || !t.eases(i) {
				continue
			}
			if t.allowed(t.first(i)) {
				best = i
			}
		}
		if best < 0 {
			return false
		}
		t.take(t.first(best))
	}
	return true
}

// first is what of a candidate ends next: a member that has run for the minimum run time, if there is one.
func (t *trial) first(i int) item {
	for j, gone := range t.gone[i] {
		if !gone && t.ran(&t.candidates[i], []int{j}) {
			return t.next(member{i, j})
		}
	}
	return t.next(member{i, slices.Index(t.gone[i], false)})
}

// eases reports whether a candidate counts in a queue whose limit is exceeded.
func (t *trial) eases(i int) bool {
	c := &t.candidates[i]
	if t.rules[i] == RuleOpportunistic {
		return false
	}
	for n := t.demander.Queue; n > queue.Top; n = t.tree.Parent(n) {
		for d, more := range t.demander.Charge {
			if more > 0 && t.book.Used(n, d)-t.freedOf(n, d)+more > t.tree.Limit(n, d) && t.below(c.Queue, n) {
				return true
			}
		}
	}
	return false
}

// below reports whether a queue is another one or below it.
func (t *trial) below(n, up queue.Node) bool {
	for ; n >= queue.Top; n = t.tree.Parent(n) {
		if n == up {
			return true
		}
	}
	return false
}

// shrink lets all end that may, places the demander, and gives back what does not stand in its way. It finds what grow does
// not where a gang is bound to a topology.
func (t *trial) shrink() bool {
	t.takeAll()
	if t.lawful() && t.alone() {
		t.reprieve()
		if items := t.restore(); t.retake(items) && t.lawful() && t.fits() {
			return true
		}
	}
	t.restore()
	return false
}

// reprieve gives back what does not hold the devices of the places that were found, those first that end last.
func (t *trial) reprieve() {
	reserved := make([]alloc.Assignment, 0, len(t.found.Placements))
	for i := range t.found.Placements {
		if a := t.found.Placements[i].Assignment; t.inv.Reserve(a) == nil {
			reserved = append(reserved, a)
		}
	}
	t.sortItems()
	for at := len(t.items) - 1; at >= 0; at-- {
		if t.bound(at) || !t.vacant(t.items[at]) {
			continue
		}
		if it := t.giveBack(at); !t.lawful() {
			t.takeAt(at, it)
		}
	}
	for _, a := range reserved {
		t.inv.Unreserve(a)
	}
}

// vacant reports whether what something held is free.
func (t *trial) vacant(it item) bool {
	c, all := &t.candidates[it.candidate], true
	var got []alloc.Assignment
	for _, j := range it.members {
		t.steps++
		for _, a := range c.Members[j].Assignments {
			if all = all && t.inv.Reserve(a) == nil; all {
				got = append(got, a)
			}
		}
	}
	for _, a := range got {
		t.inv.Unreserve(a)
	}
	return all
}

// bound reports whether an item must stay because its gang ends as a whole.
func (t *trial) bound(at int) bool {
	it := t.items[at]
	return !it.whole && slices.ContainsFunc(t.items, func(o item) bool { return o.whole && o.candidate == it.candidate })
}

// sortItems puts what is taken in the order in which it ends.
func (t *trial) sortItems() {
	slices.SortStableFunc(t.items, func(a, b item) int { return cmp.Compare(t.rank[a.candidate], t.rank[b.candidate]) })
}

// minimize gives back whatever is not needed: first what stands in nobody's way, then what the demander does without in
// other places.
func (t *trial) minimize() {
	if !t.moving && t.lawful() && t.fits() {
		t.reprieve()
	}
	t.sortItems()
	for at := len(t.items) - 1; at >= 0 && t.steps < t.most; at-- {
		if t.bound(at) {
			continue
		}
		it := t.giveBack(at)
		if !t.lawful() || !t.fits() {
			t.takeAt(at, it)
		}
	}
}

// cost is how many pods end: those that are not opportunistic count first.
type cost struct{ others, all int }

func (c cost) compare(d cost) int {
	return cmp.Or(cmp.Compare(c.others, d.others), cmp.Compare(c.all, d.all))
}

func (t *trial) cost(items []item) (c cost) {
	for _, it := range items {
		c.all += len(it.members)
		if t.rules[it.candidate] != RuleOpportunistic {
			c.others += len(it.members)
		}
	}
	return c
}

// improve looks for fewer victims among all sets of those who may end, the smallest first, as far as the bound allows.
// Without victims it looks for any.
func (t *trial) improve() {
	best := t.restore()
	least := t.cost(best)
	if len(best) == 0 {
		least = cost{math.MaxInt, math.MaxInt}
	}
	var units []member
	for i := range t.candidates {
		if t.rules[i] == "" {
			continue
		}
		if len(t.candidates[i].Members) > t.candidates[i].Minimum {
			for j := range t.candidates[i].Members {
				units = append(units, member{i, j})
			}
		}
		units = append(units, member{i, -1})
	}
	slices.SortStableFunc(units, func(a, b member) int { return cmp.Compare(t.rank[a.candidate], t.rank[b.candidate]) })
	for size := 1; size <= min(least.all, len(units)) && t.steps < t.most; size++ {
		t.choose(units, size, func() {
			if c := t.cost(t.items); c.compare(least) < 0 && t.lawful() && t.fits() {
				best, least = slices.Clone(t.items), c
			}
		}, &least)
	}
	t.retake(best)
}

// choose goes through the sets of so many units whose cost is below the least.
func (t *trial) choose(units []member, size int, do func(), least *cost) {
	if size == 0 {
		do()
		return
	}
	for at, u := range units {
		if t.steps > t.most {
			return
		}
		it := t.whole(u.candidate)
		if u.member >= 0 {
			if t.left[u.candidate] <= t.candidates[u.candidate].Minimum {
				continue
			}
			it = item{candidate: u.candidate, members: []int{u.member}}
		}
		first := len(t.items)
		if t.cost(append(t.items[:first:first], it)).compare(*least) >= 0 || !t.try(it) {
			continue
		}
		t.choose(units[at+1:], size-1, do, least)
		t.undo(first)
	}
}
