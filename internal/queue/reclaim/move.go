package reclaim

import (
	"maps"
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// home is where members of a candidate go that move.
type home struct {
	members []int
	places  []alloc.Assignment
}

// moves reports whether all members of a candidate may move.
func (c *Candidate) moves() bool {
	return c.Movable && !slices.ContainsFunc(c.Members, func(m Member) bool { return m.Again == nil })
}

// protecting are the budgets that protect a member from what is searched for.
func (t *trial) protecting(c *Candidate, member int) []int {
	if c.Outwaited && !t.moving {
		return nil
	}
	return c.Members[member].Budgets
}

// move is the search for those who move, nil where that helps nobody.
func (t *trial) move() *Plan {
	defer t.end()
	if !t.any || !Assured(t.book, t.demander) || !t.lawful() || !t.enough() || !t.possible() {
		return nil
	}
	if t.grow() || t.shrink() {
		t.minimize()
	}
	t.improve()
	if len(t.items) == 0 || !t.fits() {
		return nil
	}
	t.stay()
	return t.plan()
}

// Assured reports whether a demander is within the guarantees of all queues on its path, so that pods may move for it.
func Assured(book *queue.Book, d *Demander) bool {
	tree, named := book.Tree(), false
	if d.Quota == v1alpha1.QuotaOpportunistic {
		return false
	}
	for dimension, more := range d.Charge {
		if more <= 0 || !tree.Names(d.Queue, dimension) {
			continue
		}
		named = true
		for n := d.Queue; n > queue.Top; n = tree.Parent(n) {
			if book.Used(n, dimension)+more > book.Guaranteed(n, dimension) {
				return false
			}
		}
	}
	return named
}

// enough reports whether as much memory and time is free as the demander asks for, wherever it is: what is not there cannot be
// gathered.
func (t *trial) enough() bool {
	var memory, cores, freeMemory, freeCores uint64
	for i := range t.demander.Members {
		m := &t.demander.Members[i]
		if m.Placed != nil {
			continue
		}
		for _, claim := range m.Pod.Claims {
			one, time := t.least(claim)
			memory, cores = memory+one, cores+time
		}
	}
	for at := range t.inv.Len() {
		n := t.inv.Node(at)
		for i := range n.GPUs {
			g := &n.GPUs[i]
			if g.Fault == "" && g.Fence == "" {
				freeMemory += g.Capacity - min(g.Capacity, g.Granted)
				freeCores += uint64(max(0, 100-g.Cores))
			}
		}
	}
	t.steps += t.inv.Len()
	return memory <= freeMemory && cores <= freeCores
}

// least is the least memory and time that a claim takes of GPUs which serve it.
func (t *trial) least(claim []alloc.Request) (memory, cores uint64) {
	first := true
	for i := range claim {
		r := &claim[i]
		for _, p := range t.inv.Parts(r) {
			m, c := p.Memory*uint64(r.Count), uint64(p.Cores*r.Count)
			if r.Overcommit {
				m = 0
			}
			if r.OvercommitCores {
				c = 0
			}
			if first {
				memory, cores, first = m, c, false
			}
			memory, cores = min(memory, m), min(cores, c)
		}
	}
	return memory, cores
}

// home finds places for the members of a candidate that move, beside those that stay.
func (t *trial) home(candidate int) (h home, ok bool) {
	c := &t.candidates[candidate]
	h.members = t.away(candidate)
	if len(c.Members) == 1 {
		t.steps += 2 + t.inv.Len()/4
		a, ok := t.tightest(c.Members[0].Again, c.Members[0].Again.Among)
		h.places = []alloc.Assignment{a}
		return h, ok
	}
	g, members := c.Gang, make([]gang.Member, len(c.Members))
	g.Size, g.Minimum = len(members), len(members)
	for j := range c.Members {
		m := &c.Members[j]
		members[j] = *m.Again
		members[j].Key = m.Key
		if !t.gone[candidate][j] {
			members[j].Placed = m.held()
		}
	}
	t.steps += 8 + t.inv.Len() + 4*len(members)
	plan, refusal := gang.Place(t.inv, g, members, t.options.Nodes)
	if refusal != nil {
		return h, false
	}
	for _, j := range h.members {
		at := slices.IndexFunc(plan.Placements, func(p gang.Placement) bool { return p.Member.Key == c.Members[j].Key })
		if at < 0 {
			return h, false
		}
		h.places = append(h.places, plan.Placements[at].Assignment)
	}
	return h, true
}

// held is all that a member has as one assignment.
func (m *Member) held() *alloc.Assignment {
	all := alloc.Assignment{Node: -1, Name: m.node()}
	for i := range m.Assignments {
		all.Shares = append(all.Shares, m.Assignments[i].Shares...)
	}
	return &all
}

// away are the members of a candidate that move.
func (t *trial) away(candidate int) (members []int) {
	for j, gone := range t.gone[candidate] {
		if gone {
			members = append(members, j)
		}
	}
	return members
}

// serves reports whether the demander and those who move fit where they were found last.
func (t *trial) serves() bool {
	if len(t.found.Placements) == 0 || t.moving && t.homes == nil {
		return false
	}
	var places []alloc.Assignment
	for i := range t.found.Placements {
		places = append(places, t.found.Placements[i].Assignment)
	}
	for _, i := range t.moved() {
		h, known := t.homes[i]
		if !known || !slices.Equal(h.members, t.away(i)) {
			return false
		}
		places = append(places, h.places...)
	}
	fit := 0
	for fit < len(places) && t.inv.Reserve(places[fit]) == nil {
		fit++
	}
	for _, a := range slices.Backward(places[:fit]) {
		t.inv.Unreserve(a)
	}
	t.steps += len(places)
	return fit == len(places)
}

// stay gives back those who would come back to what they have, or whose places nobody needs, while all others go where they were
// found last.
func (t *trial) stay() {
	t.sortItems()
	for at := len(t.items) - 1; at >= 0; at-- {
		if t.bound(at) {
			continue
		}
		if it := t.giveBack(at); !t.serves() {
			t.takeAt(at, it)
		}
	}
}

// moves are where those who move go.
func (t *trial) moves() (all []Move) {
	if !t.moving {
		return nil
	}
	for _, i := range slices.Sorted(maps.Keys(t.homes)) {
		if h := t.homes[i]; len(t.away(i)) > 0 {
			for k, j := range h.members {
				all = append(all, Move{Candidate: i, Member: j, Assignment: h.places[k]})
			}
		}
	}
	return all
}

// tightest is the tightest place for a member among some nodes that it is let onto.
func (t *trial) tightest(m *gang.Member, among *alloc.NodeSet) (alloc.Assignment, bool) {
	choices, err := t.inv.TightChoices(&m.Pod, among)
	if err != nil {
		return alloc.Assignment{}, false
	}
	for a, ok := choices.Next(); ok; a, ok = choices.Next() {
		if m.Lets == nil || m.Lets(a.Node) {
			return a, true
		}
	}
	return alloc.Assignment{}, false
}
