package queue

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Workload is a pod or a gang.
type Workload struct {
	ID string
	// Queue names its queue. One that there is not blocks nothing: the workload is [Outside] until there is.
	Queue    string
	Quota    v1alpha1.Quota
	Priority int32
	// Since is when it began to wait, for its age.
	Since time.Time
	// Asks is what it asks: of a gang, for as many members as must run together.
	Asks []Charge
}

// Book knows all workloads, and what their queues use, want and are entitled to. Only one goroutine at a time may call its
// methods.
type Book struct {
	tree     *Tree
	capacity []Charge
	entries  map[string]*entry
	shares   []*shares // by dimension
	stale    []bool    // by dimension: demand has changed since shares were computed
	// By dimension and node: used is what is held but for opportunistic workloads, assured what those with guaranteed quota
	// hold, occupied what is used and withheld below, demand what is asked or held.
	used, assured, occupied, demand [][]int64
	waiting                         [][]*entry // by node, in order
	running                         []int      // by node
	opportunistic                   []Vector   // by node
	many                            []int      // by node: how many wait here and below
}

// entry is a workload.
type entry struct {
	Workload
	node        Node
	asks, holds Vector
	held        []Charge
	runs        bool
}

// NewBook makes a book without queues.
func NewBook() *Book {
	b := &Book{entries: map[string]*entry{}}
	b.SetQueues(nil)
	return b
}

// Tree is the queues of the book, until [Book.SetQueues].
func (b *Book) Tree() *Tree { return b.tree }

// SetQueues replaces all queues. What is held stays held, and is counted in the queue of its name.
func (b *Book) SetQueues(specs []Spec) {
	b.tree = NewTree(specs)
	b.recount()
}

// SetCapacity says what GPUs there are: a charge for those of each model.
func (b *Book) SetCapacity(capacity []Charge) {
	b.capacity = slices.Clone(capacity)
	b.recount()
}

// Capacity is what there is, by dimension.
func (b *Book) Capacity() Vector { return b.tree.Vector(b.capacity) }

// recount computes everything from the workloads.
func (b *Book) recount() {
	nodes, dimensions := len(b.tree.nodes), len(b.tree.dimensions)
	table := func() [][]int64 {
		rows := make([][]int64, dimensions)
		for i := range rows {
			rows[i] = make([]int64, nodes)
		}
		return rows
	}
	b.used, b.assured, b.occupied, b.demand = table(), table(), table(), table()
	b.waiting, b.running, b.many = make([][]*entry, nodes), make([]int, nodes), make([]int, nodes)
	b.opportunistic = make([]Vector, nodes)
	for i := range b.opportunistic {
		b.opportunistic[i] = make(Vector, dimensions)
	}
	b.shares, b.stale = make([]*shares, dimensions), make([]bool, dimensions)
	capacity := b.Capacity()
	for d := range dimensions {
		b.shares[d], b.stale[d] = newShares(b.tree, d), true
		b.shares[d].guarantee(b.tree, capacity[d])
	}
	for _, e := range b.entries {
		e.node = b.home(e.Queue)
		e.asks, e.holds = b.tree.Vector(e.Asks), b.tree.Vector(e.held)
		b.count(e, 1)
		if !e.runs {
			b.waiting[e.node] = append(b.waiting[e.node], e)
		}
	}
	for i := range b.waiting {
		slices.SortFunc(b.waiting[i], before)
	}
	for d := range dimensions {
		b.occupy(d)
	}
}

func (b *Book) home(name string) Node {
	if n, ok := b.tree.Find(name); ok {
		return n
	}
	return Outside
}

// occupy computes what is occupied in a dimension.
func (b *Book) occupy(d int) {
	for i := len(b.tree.nodes) - 1; i >= 0; i-- {
		n := &b.tree.nodes[i]
		sum := b.used[d][i]
		if len(n.parts) > 0 {
			sum = 0
		}
		for _, part := range n.parts {
			sum += b.occupied[d][part] + b.kept(d, part)
		}
		b.occupied[d][i] = sum
	}
}

// kept is what a queue keeps of its guarantee, idle and not lent, though others want it.
func (b *Book) kept(d int, n Node) int64 {
	return withheld(b.shares[d].guaranteed[n], b.occupied[d][n], b.tree.nodes[n].quotas[d].lends)
}

// count adds a workload to all sums, or takes it from them.
func (b *Book) count(e *entry, sign int64) {
	if e.runs {
		b.running[e.node] += int(sign)
	} else {
		for n := e.node; n >= 0; n = b.tree.nodes[n].parent {
			b.many[n] += int(sign)
		}
	}
	for d := range e.holds {
		if e.Quota == v1alpha1.QuotaOpportunistic {
			b.opportunistic[e.node][d] += sign * e.holds[d]
			continue
		}
		if wanted := max(e.asks[d], e.holds[d]); wanted != 0 {
			b.demand[d][e.node] += sign * wanted
			b.stale[d] = true
		}
		if held := sign * e.holds[d]; held != 0 {
			b.use(d, e.node, held, e.Quota == v1alpha1.QuotaGuaranteed)
		}
	}
}

// use adds to what a queue and its ancestors use.
func (b *Book) use(d int, at Node, amount int64, assured bool) {
	occupied := amount
	for n := at; n >= 0; n = b.tree.nodes[n].parent {
		b.used[d][n] += amount
		if assured {
			b.assured[d][n] += amount
		}
		before := b.kept(d, n)
		b.occupied[d][n] += occupied
		occupied += b.kept(d, n) - before
	}
}

// before is the order inside a queue: by priority, then age.
func before(x, y *entry) int {
	return cmp.Or(cmp.Compare(y.Priority, x.Priority), x.Since.Compare(y.Since), strings.Compare(x.ID, y.ID))
}

// Arrive enters a workload that waits, or changes one.
func (b *Book) Arrive(w Workload) {
	e := &entry{Workload: w, node: b.home(w.Queue), asks: b.tree.Vector(w.Asks), holds: make(Vector, len(b.tree.dimensions))}
	if old := b.entries[w.ID]; old != nil {
		e.held, e.runs, e.holds = old.held, old.runs, old.holds
		b.remove(old)
	}
	b.entries[w.ID] = e
	b.insert(e)
}

func (b *Book) insert(e *entry) {
	b.count(e, 1)
	if !e.runs {
		line := b.waiting[e.node]
		at, _ := slices.BinarySearchFunc(line, e, before)
		b.waiting[e.node] = slices.Insert(line, at, e)
	}
}

func (b *Book) remove(e *entry) {
	b.count(e, -1)
	if !e.runs {
		line := b.waiting[e.node]
		if at, found := slices.BinarySearchFunc(line, e, before); found {
			b.waiting[e.node] = slices.Delete(line, at, at+1)
		}
	}
}

// Hold says what a workload holds, whatever its queue allows: what was found after a restart, or what is left of a gang. One
// that holds nothing waits. It reports false for a workload that is not in the book.
func (b *Book) Hold(id string, held []Charge) bool {
	e := b.entries[id]
	if e == nil {
		return false
	}
	b.remove(e)
	e.held, e.runs, e.holds = slices.Clone(held), len(held) > 0, b.tree.Vector(held)
	b.insert(e)
	return true
}

// End forgets a workload.
func (b *Book) End(id string) {
	if e := b.entries[id]; e != nil {
		b.remove(e)
		delete(b.entries, id)
	}
}

// Start lets a workload hold what is given, if its queue and all that this is a part of allow it, in one step. The error is
// a [*Refusal], and then nothing has changed.
func (b *Book) Start(id string, held []Charge) error {
	if refusal := b.Check(id, held); refusal != nil {
		return refusal
	}
	b.Hold(id, held)
	return nil
}

// Entitled is what a queue is entitled to in a dimension.
func (b *Book) Entitled(n Node, dimension int) int64 { return b.current(dimension).entitled[n] }

// Guaranteed is what is guaranteed to a queue in effect.
func (b *Book) Guaranteed(n Node, dimension int) int64 { return b.shares[dimension].guaranteed[n] }

// Used is what a queue and its parts hold, but for opportunistic workloads.
func (b *Book) Used(n Node, dimension int) int64 { return b.used[dimension][n] }

// current are the shares of a dimension for the demand that there is.
func (b *Book) current(d int) *shares {
	if b.stale[d] {
		b.shares[d].entitle(b.tree, func(n Node) int64 { return b.demand[d][n] })
		b.stale[d] = false
	}
	return b.shares[d]
}
