package ledger

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/alloc"
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
			all = append(all, l.fenceOf(name, g))
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

// FenceOf is the fence of a GPU of which a claim, by "namespace/name", has a part; ok is false where none of its GPUs is
// fenced.
func (l *Ledger) FenceOf(key string) (f Fence, ok bool) {
	l.flush()
	h := l.claims[key]
	if h == nil {
		return f, false
	}
	for _, a := range h.held {
		at, known := l.inv.Position(a.Name)
		if !known || !l.fenced[a.Name] {
			continue
		}
		n := l.inv.Node(at)
		for i := range n.GPUs {
			g := &n.GPUs[i]
			if g.Fence != "" && slices.ContainsFunc(a.Shares, func(s alloc.Share) bool { return s.UUID == g.UUID }) {
				return l.fenceOf(a.Name, g), true
			}
		}
	}
	return f, false
}

// fenceOf is the fence of a GPU that has one.
func (l *Ledger) fenceOf(node string, g *alloc.GPU) Fence {
	f := Fence{Node: node, UUID: g.UUID, Reason: l.fences[gpuID{node, g.UUID}]}
	if f.Reason == "" {
		f.Reason, f.Claims = "it "+g.Fence, l.claimsOn(node, g.UUID)
	}
	return f
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
