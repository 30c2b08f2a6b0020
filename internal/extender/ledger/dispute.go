package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// shareID names a share of a pod.
type shareID struct {
	pod  types.UID
	name string
}

func (a shareID) compare(b shareID) int {
	return cmp.Or(cmp.Compare(a.pod, b.pod), cmp.Compare(a.name, b.name))
}

// dispute is a share of which a node's agent says something else than the pod does.
type dispute struct {
	since time.Time
	reason
	uuids []string
}

// reason says why a GPU is fenced.
type reason struct {
	kind FenceKind
	text string
}

// compare has the inventory count what the node's agent holds for pods and no pod says, and notes what is disputed. What
// is held counts from the first moment on: it may be a pod's that has ended and has not let go yet.
func (l *Ledger) compare(n *node) {
	strangers, disputes := map[shareID]alloc.Assignment{}, map[shareID]*dispute{}
	for i := range n.held.Shares {
		h := &n.held.Shares[i]
		id := shareID{types.UID(h.Pod), h.Name}
		held, known := n.heldOf(h), l.known(n, id)
		if sameShares(held, known) {
			continue
		}
		d := &dispute{since: l.now, reason: disputed(id, known)}
		for _, s := range slices.Concat(held, known) {
			d.uuids = append(d.uuids, s.UUID)
		}
		if before := n.disputes[id]; before != nil && before.reason == d.reason && slices.Equal(before.uuids, d.uuids) {
			d.since = before.since
		}
		disputes[id] = d
		if more := excess(held, known); len(more) > 0 {
			strangers[id] = alloc.Assignment{Node: -1, Name: n.name, Shares: more}
		}
	}
	l.countStrangers(n, strangers)
	n.disputes = disputes
	if len(disputes) > 0 || len(n.fences) > 0 {
		l.disputed[n.name] = true
	}
}

// countStrangers replaces what the inventory counts of a node by what agents alone say.
func (l *Ledger) countStrangers(n *node, after map[shareID]alloc.Assignment) {
	for id, a := range n.strangers {
		if b, ok := after[id]; !ok || !sameAssignment(&a, &b) {
			l.inv.Unreserve(a)
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(after), shareID.compare) {
		a, b := after[id], n.strangers[id]
		if !sameAssignment(&a, &b) {
			l.inv.Adopt(a)
		}
	}
	n.strangers = after
}

// heldOf is what a node's agent holds for a share.
func (n *node) heldOf(h *v1alpha1.ShareHeld) (all []alloc.Share) {
	for _, g := range h.GPUs {
		s := alloc.Share{UUID: g.UUID, Limit: min(g.Memory, mostAmount), Whole: h.Whole}
		if !h.Offline {
			s.Cores = g.Cores
		}
		all = append(all, n.full(s))
	}
	return all
}

// known is what a pod says of a share that it has, or is about to have, on a node.
func (l *Ledger) known(n *node, id shareID) (all []alloc.Share) {
	var shares []share
	if p := l.pods[id.pod]; p != nil && p.view.node == n.name {
		shares = p.shares
	} else if f := l.flights[id.pod]; f != nil && f.node == n.name {
		shares = f.shares
	}
	for i := range shares {
		if shares[i].name != id.name {
			continue
		}
		for _, s := range shares[i].gpus {
			all = append(all, n.full(s))
		}
	}
	return all
}

// sameShares reports whether two lists have the same parts of the same GPUs, in whatever order.
func sameShares(a, b []alloc.Share) bool {
	return len(a) == len(b) && len(excess(a, b)) == 0 && len(excess(b, a)) == 0
}

// excess is what shares have of GPUs beyond what others have.
func excess(of, beyond []alloc.Share) (more []alloc.Share) {
	for _, s := range of {
		i := slices.IndexFunc(beyond, func(b alloc.Share) bool { return b.UUID == s.UUID })
		if i < 0 {
			more = append(more, s)
			continue
		}
		b := &beyond[i]
		if s.Limit <= b.Limit && s.Cores <= b.Cores && (!s.Whole || b.Whole) {
			continue
		}
		s.Limit -= min(s.Limit, b.Limit)
		s.Cores -= min(s.Cores, b.Cores)
		more = append(more, s)
	}
	return more
}

// disputed says what is wrong with a share.
func disputed(id shareID, known []alloc.Share) reason {
	if len(known) == 0 {
		return reason{FencedUnclaimed, fmt.Sprintf("its node's agent holds share %q of pod %s, and no such pod with that share is there", id.name, id.pod)}
	}
	return reason{FencedDiffering, fmt.Sprintf("its node's agent holds something else for share %q of pod %s than the pod's annotation %s says", id.name, id.pod, v1alpha1.AssignmentAnnotation)}
}

// fence keeps new shares from the GPUs of disputes that have lasted for the grace, and lifts what has ended.
func (l *Ledger) fence(n *node) {
	fences := map[string]reason{}
	for _, id := range slices.SortedFunc(maps.Keys(n.disputes), shareID.compare) {
		d := n.disputes[id]
		if l.now.Sub(d.since) < l.config.Grace {
			continue
		}
		for _, uuid := range d.uuids {
			if _, fenced := fences[uuid]; !fenced {
				fences[uuid] = d.reason
			}
		}
	}
	for uuid := range n.fences {
		if _, lasts := fences[uuid]; !lasts {
			l.inv.Fence(n.name, uuid, "")
			l.changes++
		}
	}
	for uuid, why := range fences {
		if n.fences[uuid] != why {
			l.inv.Fence(n.name, uuid, why.text)
		}
	}
	n.fences = fences
	if len(n.disputes) == 0 && len(fences) == 0 {
		delete(l.disputed, n.name)
	}
}

// FenceKind says which kind of reason a fence has.
type FenceKind string

// The kinds.
const (
	// FencedUnreadable is a node whose annotations cannot be read, or say half.
	FencedUnreadable FenceKind = "unreadable"
	// FencedSurplus is a GPU beyond the most of a node.
	FencedSurplus FenceKind = "surplus"
	// FencedExceeded is a GPU of which more is given than there is, or that is given whole and has other tenants.
	FencedExceeded FenceKind = "exceeded"
	// FencedUnclaimed is a GPU of which the agent holds a share that no pod says it has, and FencedDiffering one of which it holds something
	// else for a share than the pod says.
	FencedUnclaimed FenceKind = "unclaimed"
	FencedDiffering FenceKind = "differing"
)

// FenceKinds are all of them.
var FenceKinds = []FenceKind{FencedUnreadable, FencedSurplus, FencedExceeded, FencedUnclaimed, FencedDiffering}

// Fence is a GPU that takes no more shares until what contradicts itself there has ended, and why.
type Fence struct {
	// UUID is empty where the node's annotations cannot be read, so that none of its GPUs takes shares.
	Node, UUID string
	Kind       FenceKind
	Reason     string
	// Pods are those with a part of the GPU, by UID, in order.
	Pods []string
}

// Fences are all that there are, by node and UUID.
func (l *Ledger) Fences() []Fence {
	l.flush()
	var all []Fence
	for name, n := range l.nodes {
		if n.fault != "" {
			all = append(all, Fence{Node: name, Kind: FencedUnreadable, Reason: oneLine(n.fault)})
		}
		for _, uuid := range n.more {
			all = append(all, Fence{Node: name, UUID: uuid, Kind: FencedSurplus, Reason: fmt.Sprintf("its node has more than %d GPUs", alloc.MaxGPUs)})
		}
		at, ok := l.inv.Position(name)
		if !ok {
			continue
		}
		gpus := l.inv.Node(at).GPUs
		for i := range gpus {
			if g := &gpus[i]; g.Fence != "" {
				why := cmp.Or(n.fences[g.UUID], reason{FencedExceeded, "it " + g.Fence})
				all = append(all, Fence{Node: name, UUID: g.UUID, Kind: why.kind, Reason: why.text, Pods: n.podsOn(g.UUID)})
			}
		}
	}
	slices.SortFunc(all, func(a, b Fence) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.UUID, b.UUID), strings.Compare(a.Reason, b.Reason))
	})
	return all
}

// podsOn are the pods with a part of a GPU.
func (n *node) podsOn(uuid string) []string {
	found := map[string]bool{}
	has := func(a *alloc.Assignment) bool {
		return slices.ContainsFunc(a.Shares, func(s alloc.Share) bool { return s.UUID == uuid })
	}
	for uid, p := range n.holders {
		if has(&p.counted) {
			found[string(uid)] = true
		}
	}
	for id, a := range n.strangers {
		if has(&a) {
			found[string(id.pod)] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}
