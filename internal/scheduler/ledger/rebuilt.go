package ledger

import (
	"fmt"
	"maps"
	"slices"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Rebuilt is a ledger that is made anew of what this one was told last of every object, under a policy. What was reserved and
// is not written yet is reserved there too.
func (l *Ledger) Rebuilt(policy alloc.Policy) (*Ledger, error) {
	made, err := New(policy)
	if err != nil {
		return nil, fmt.Errorf("rebuild the ledger: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(l.nodes)) {
		if n := l.nodes[name]; n.there {
			one := made.node(name)
			one.there, one.cpu, one.memory, one.cpuUsed, one.memoryUsed = true, n.cpu, n.memory, n.cpuUsed, n.memoryUsed
			made.change(one, gpusAreStale)
		}
	}
	made.classes = maps.Clone(l.classes)
	for _, name := range slices.Sorted(maps.Keys(l.pools)) {
		made.SetPool(name, l.pools[name].slices)
	}
	for id, reason := range l.fences {
		made.Fence(id.node, id.uuid, reason)
	}
	for key, h := range l.claims {
		made.setTakings(key, h.takings)
	}
	for key, f := range l.flights {
		made.flights[key] = f
		made.inv.Adopt(f.given)
		for _, id := range f.devices {
			made.count(id, 1)
		}
	}
	return made, nil
}

// Equal reports whether two ledgers say the same of every GPU and node.
func (l *Ledger) Equal(other *Ledger) bool { return l.Difference(other) == "" }

// Difference says in what two ledgers differ first, "" for equal ones.
func (l *Ledger) Difference(other *Ledger) string {
	l.flush()
	other.flush()
	for _, name := range slices.Sorted(maps.Keys(l.nodes)) {
		if n := l.nodes[name]; n.there {
			if text := l.difference(other, name); text != "" {
				return "node " + name + ": " + text
			}
		}
	}
	switch {
	case l.present() != other.present():
		return fmt.Sprintf("there are %d nodes and %d", l.present(), other.present())
	case !maps.EqualFunc(l.claims, other.claims, func(a, b *holding) bool { return slices.Equal(a.takings, b.takings) }):
		return "other claims are allocated"
	case !maps.EqualFunc(l.flights, other.flights, func(a, b flight) bool { return sameAssignment(a.given, b.given) }):
		return "other places are reserved"
	case !maps.Equal(l.fences, other.fences):
		return "other GPUs are fenced by a caller"
	}
	return ""
}

func (l *Ledger) present() (count int) {
	for _, n := range l.nodes {
		if n.there {
			count++
		}
	}
	return count
}

// difference compares what the inventories have of a node.
func (l *Ledger) difference(other *Ledger, name string) string {
	at, ok := l.inv.Position(name)
	there, known := other.inv.Position(name)
	if ok != known {
		return fmt.Sprintf("it is there: %v and %v", ok, known)
	}
	if !ok {
		return ""
	}
	a, b := l.inv.Node(at), other.inv.Node(there)
	if a.CPU != b.CPU || a.CPUUsed != b.CPUUsed || a.Memory != b.Memory || a.MemoryUsed != b.MemoryUsed || len(a.GPUs) != len(b.GPUs) {
		return fmt.Sprintf("%d GPUs, CPU %d of %d, memory %d of %d, and %d GPUs, CPU %d of %d, memory %d of %d",
			len(a.GPUs), a.CPUUsed, a.CPU, a.MemoryUsed, a.Memory, len(b.GPUs), b.CPUUsed, b.CPU, b.MemoryUsed, b.Memory)
	}
	for i := range a.GPUs {
		one, two := l.comparable(a.GPUs[i]), other.comparable(b.GPUs[i])
		if one != two {
			return "a GPU is " + one + ", and " + two
		}
	}
	return ""
}

// comparable is a text that is equal for equal GPUs. Which of several claims came first decides what is said of a
// contradiction between them and which of their instances is counted; that is left out.
func (l *Ledger) comparable(g alloc.GPU) string {
	fenced := g.Fence != ""
	if fenced {
		g.Slices, g.Instances = 0, 0
	}
	return fmt.Sprintf("%s %d %q has %d bytes (%d slots, %v): %d bytes, %d cores, %d tenants, slices %b, instances %b, fenced %v, fault %q, class %q, %+v",
		g.UUID, g.Index, g.Model, g.Capacity, g.Slots, g.Profiles, g.Granted, g.Cores, g.Tenants, g.Slices, g.Instances, fenced,
		g.Fault, l.sorts.byNumber[g.Class].id, g.Location)
}
