package queue

import (
	"container/heap"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Turns are the workloads that are to be tried next, of those that wait in a book. They come in the order of [Book.Order]: the
// queue first that uses least of its entitlement at that moment, and inside it by priority, then age. Only one goroutine at a
// time may call its methods, which is the book's.
type Turns struct {
	book *Book
	// tree is that for which lines and many were made.
	tree *Tree
	in   map[string]*turn
	// lines are by node: of workloads that are not opportunistic, and of those that are.
	lines [2][]turns
	many  [2][]int // by node: how many are in lines here and below
}

// turn is a workload in its line.
type turn struct {
	entry *entry
	class int
	node  Node
	at    int // in its line
}

// turns is a heap.
type turns []*turn

func (l turns) Len() int           { return len(l) }
func (l turns) Less(i, j int) bool { return before(l[i].entry, l[j].entry) < 0 }
func (l turns) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].at, l[j].at = i, j
}
func (l *turns) Push(x any) {
	if one, ok := x.(*turn); ok {
		one.at = len(*l)
		*l = append(*l, one)
	}
}
func (l *turns) Pop() any {
	last := len(*l) - 1
	one := (*l)[last]
	(*l)[last] = nil
	*l = (*l)[:last]
	return one
}

// NewTurns makes the turns of a book, of nobody.
func NewTurns(book *Book) *Turns { return &Turns{book: book, in: map[string]*turn{}} }

// Add has a workload tried when its turn comes. It reports false for one that is not in the book. One that runs already, such as
// a gang that lacks members, comes in the same order.
func (t *Turns) Add(id string) bool {
	t.renew()
	if t.in[id] != nil {
		t.Remove(id)
	}
	e := t.book.entries[id]
	if e == nil {
		return false
	}
	t.enter(e)
	return true
}

func (t *Turns) enter(e *entry) {
	one := &turn{entry: e, node: e.node}
	if e.Quota == v1alpha1.QuotaOpportunistic {
		one.class = 1
	}
	t.in[e.ID] = one
	heap.Push(&t.lines[one.class][one.node], one)
	t.count(one, 1)
}

func (t *Turns) count(one *turn, by int) {
	for n := one.node; n >= 0; n = t.tree.nodes[n].parent {
		t.many[one.class][n] += by
	}
}

// Remove takes a workload out of the turns, and reports whether it was there.
func (t *Turns) Remove(id string) bool {
	t.renew()
	one := t.in[id]
	if one == nil {
		return false
	}
	delete(t.in, id)
	heap.Remove(&t.lines[one.class][one.node], one.at)
	t.count(one, -1)
	return true
}

// Len is how many have turns.
func (t *Turns) Len() int { return len(t.in) }

// Has reports whether a workload has a turn.
func (t *Turns) Has(id string) bool { return t.in[id] != nil }

// First is the workload whose turn it is; it stays in the turns. It reports false where there is none.
func (t *Turns) First() (id string, ok bool) {
	t.renew()
	for class := range t.many {
		if t.many[class] == nil || t.many[class][Top] == 0 {
			continue
		}
		n := Top
		for len(t.lines[class][n]) == 0 {
			n = t.next(class, n)
		}
		return t.lines[class][n][0].entry.ID, true
	}
	return "", false
}

// next is the part of a queue that uses least of its entitlement, of those in which somebody has a turn.
func (t *Turns) next(class int, n Node) (best Node) {
	var least fraction
	best = -1
	for _, part := range t.tree.nodes[n].parts { // by name
		if t.many[class][part] == 0 {
			continue
		}
		if use := t.book.dominant(part); best < 0 || use.compare(least) < 0 {
			best, least = part, use
		}
	}
	return best
}

// renew follows the book: entries are replaced when a workload changes, and nodes when queues do.
func (t *Turns) renew() {
	if t.tree == t.book.tree {
		return
	}
	t.tree = t.book.tree
	for class := range t.lines {
		t.lines[class], t.many[class] = make([]turns, len(t.tree.nodes)), make([]int, len(t.tree.nodes))
	}
	for id := range t.in {
		if e := t.book.entries[id]; e != nil {
			t.enter(e)
		} else {
			delete(t.in, id)
		}
	}
}
