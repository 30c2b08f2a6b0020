package ledger

import (
	"fmt"
	"maps"
	"slices"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Rebuilt is a ledger that is made anew of what this one was told last of every object, and of what is reserved. What the
// policy has learnt of pods that arrive is not in it.
func (l *Ledger) Rebuilt() (*Ledger, error) {
	l.flush()
	made, err := New(l.config)
	if err != nil {
		return nil, err
	}
	made.now = l.now
	for _, name := range slices.Sorted(maps.Keys(l.nodes)) {
		made.setNode(name, l.nodes[name].view)
	}
	for _, uid := range slices.Sorted(maps.Keys(l.pods)) {
		made.setPod(uid, l.pods[uid].view)
	}
	for _, uid := range slices.Sorted(maps.Keys(l.flights)) {
		f := *l.flights[uid]
		made.inv.Adopt(f.counted)
		made.take(&f)
	}
	made.flush()
	for name := range made.disputed {
		n := made.nodes[name]
		for id, d := range n.disputes {
			d.since = l.nodes[name].disputes[id].since
		}
		made.fence(n)
	}
	return made, nil
}

// Difference says in what two ledgers differ first, "" for equal ones.
func (l *Ledger) Difference(other *Ledger) string {
	l.flush()
	other.flush()
	if a, b := slices.Sorted(maps.Keys(l.nodes)), slices.Sorted(maps.Keys(other.nodes)); !slices.Equal(a, b) {
		return fmt.Sprintf("there are nodes %q, and %q", a, b)
	}
	for _, name := range slices.Sorted(maps.Keys(l.nodes)) {
		if text := l.difference(other, name); text != "" {
			return "node " + name + ": " + text
		}
	}
	for uid, p := range l.pods {
		q := other.pods[uid]
		if q == nil || p.view != q.view || !sameAssignment(&p.counted, &q.counted) {
			return fmt.Sprintf("pod %s has %+v, and %+v", uid, p, q)
		}
	}
	if len(l.pods) != len(other.pods) {
		return fmt.Sprintf("there are %d pods, and %d", len(l.pods), len(other.pods))
	}
	if a, b := l.Reservations(), other.Reservations(); !slices.Equal(a, b) {
		return fmt.Sprintf("there are reservations %+v, and %+v", a, b)
	}
	return ""
}

// difference says in what a node differs.
func (l *Ledger) difference(other *Ledger, name string) string {
	n, m := l.nodes[name], other.nodes[name]
	at, known := l.inv.Position(name)
	in, knownToo := other.inv.Position(name)
	switch {
	case n.view != m.view || n.fault != m.fault:
		return "other things were told of it"
	case n.cpu != m.cpu || n.memory != m.memory:
		return fmt.Sprintf("%d thousandths and %d bytes are used, and %d and %d", n.cpu, n.memory, m.cpu, m.memory)
	case !maps.Equal(n.fences, m.fences):
		return fmt.Sprintf("fences %v, and %v", n.fences, m.fences)
	case known != knownToo:
		return fmt.Sprintf("the inventory has it: %v, and %v", known, knownToo)
	case !known:
		return ""
	}
	a, b := l.inv.Node(at), other.inv.Node(in)
	if a.CPU != b.CPU || a.CPUUsed != b.CPUUsed || a.Memory != b.Memory || a.MemoryUsed != b.MemoryUsed || len(a.GPUs) != len(b.GPUs) {
		return fmt.Sprintf("%d GPUs, and %d, or other amounts of the host", len(a.GPUs), len(b.GPUs))
	}
	for i := range a.GPUs {
		if one, two := standing(&a.GPUs[i]), standing(&b.GPUs[i]); one != two {
			return "a GPU is " + one + ", and " + two
		}
	}
	return ""
}

// standing is a text that is equal for GPUs of which the same is counted. Which of several pods came first decides what is
// said of a contradiction between them; that is left out.
func standing(g *alloc.GPU) string {
	return fmt.Sprintf("%s %d %q has %d bytes: %d bytes, %d cores, %d tenants of %d, fenced %v, fault %q, %+v",
		g.UUID, g.Index, g.Model, g.Capacity, g.Granted, g.Cores, g.Tenants, g.Slots, g.Fence != "", g.Fault, g.Location)
}
