package ledger

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Fence is a GPU that takes no more shares, and why.
type Fence struct {
	Node, UUID string
	Reason     string
	// Claims are those with a part of the GPU, by "namespace/name", where they contradict each other.
	Claims []string
}

// Fence keeps new shares from a GPU for a reason of the caller's, and lifts that with an empty reason. It outlives the node.
func (l *Ledger) Fence(node, uuid, reason string) {
	if reason == "" {
		delete(l.fences, gpuID{node, uuid})
	} else {
		l.fences[gpuID{node, uuid}] = reason
	}
	l.inv.Fence(node, uuid, reason)
	l.noteFences(node)
}

// noteFences looks whether a node has fenced GPUs.
func (l *Ledger) noteFences(name string) {
	delete(l.fenced, name)
	at, ok := l.inv.Position(name)
	if !ok {
		return
	}
	n := l.inv.Node(at)
	for i := range n.GPUs {
		if n.GPUs[i].Fence != "" {
			l.fenced[name] = true
		}
	}
}

// Fences are all GPUs that take no more shares though nothing is wrong with them, by node and UUID: those that a caller
// fenced, those on which claims contradict each other, and those that cannot be told apart from others.
func (l *Ledger) Fences() []Fence {
	l.flush()
	var all []Fence
	for name := range l.fenced {
		at, _ := l.inv.Position(name)
		n := l.inv.Node(at)
		for i := range n.GPUs {
			g := &n.GPUs[i]
			if g.Fence == "" {
				continue
			}
			f := Fence{Node: name, UUID: g.UUID, Reason: l.fences[gpuID{name, g.UUID}]}
			if f.Reason == "" {
				f.Reason, f.Claims = "it "+g.Fence, l.claimsOn(name, g.UUID)
			}
			all = append(all, f)
		}
	}
	for name, n := range l.nodes {
		for _, out := range n.left {
			all = append(all, Fence{Node: name, UUID: out.uuid, Reason: out.why})
		}
	}
	slices.SortFunc(all, func(a, b Fence) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.UUID, b.UUID), strings.Compare(a.Reason, b.Reason))
	})
	return all
}

// claimsOn are the claims with a part of a GPU.
func (l *Ledger) claimsOn(name, uuid string) []string {
	found := map[string]bool{}
	for pool, keys := range l.holders {
		if p := l.pools[pool]; pool != name && (p == nil || p.node != name) {
			continue
		}
		for key := range keys {
			for _, a := range l.claims[key].held {
				for i := range a.Shares {
					if a.Name == name && a.Shares[i].UUID == uuid {
						found[key] = true
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}
