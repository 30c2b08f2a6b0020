package ledger

import (
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	dra "github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Standing is where a claim's suspension stands, by what the claim says alone.
type Standing struct {
	// Order is that of the annotation, 0 for a claim without one that reads. Last is that of the newest answer.
	Order, Last int64
	// Out tells that all of its devices answer that they are in host memory, by this order or an earlier one.
	Out bool
	// Partly tells that any of them does.
	Partly bool
	// Refused tells that one of its devices refuses this order, and Why is what its agent says.
	Refused bool
	Why     string
	// RefusedAt is when any order was refused last, and BackAt when the claim came back; zero for never.
	RefusedAt, BackAt metav1.Time
}

// StandingOf reads a claim's annotation and the answers to it.
func StandingOf(claim *resourcev1.ResourceClaim) (s Standing) {
	if claim == nil || claim.Status.Allocation == nil {
		return s
	}
	if text, there := claim.Annotations[v1alpha1.SuspendAnnotation]; there {
		if read, err := v1alpha1.ParseSuspension(text); err == nil {
			s.Order = read.Order
		}
	}
	devices, out := 0, 0
	for i := range claim.Status.Allocation.Devices.Results {
		r := &claim.Status.Allocation.Devices.Results[i]
		if r.Driver != v1alpha1.Driver || ptr.Deref(r.AdminAccess, false) {
			continue
		}
		devices++
		if answer := answerOf(claim, r); answer != nil && s.add(answer) {
			out++
		}
	}
	s.Out, s.Partly = devices > 0 && out == devices, out > 0
	return s
}

// add takes in the answer of one device, and reports whether that is in host memory.
func (s *Standing) add(answer *metav1.Condition) (out bool) {
	s.Last = max(s.Last, answer.ObservedGeneration)
	switch {
	case answer.Status == metav1.ConditionTrue:
		// By the annotation's order, or by one that has ended and from which it is coming back.
		return true
	case answer.Reason == v1alpha1.RefusedReason:
		if answer.LastTransitionTime.After(s.RefusedAt.Time) {
			s.RefusedAt = answer.LastTransitionTime
		}
		if s.Order > 0 && answer.ObservedGeneration == s.Order {
			s.Refused, s.Why = true, answer.Message
		}
	case answer.Reason == v1alpha1.ResumedReason && answer.LastTransitionTime.After(s.BackAt.Time):
		s.BackAt = answer.LastTransitionTime
	}
	return false
}

// answerOf is what the agent says of a device of an allocation, nil for nothing.
func answerOf(claim *resourcev1.ResourceClaim, r *resourcev1.DeviceRequestAllocationResult) *metav1.Condition {
	for i := range claim.Status.Devices {
		d := &claim.Status.Devices[i]
		share := ""
		if r.ShareID != nil {
			share = string(*r.ShareID)
		}
		if d.Driver == r.Driver && d.Pool == r.Pool && d.Device == r.Device && ptr.Deref(d.ShareID, "") == share {
			return v1alpha1.SuspensionAnswerOf(d)
		}
	}
	return nil
}

// countsOf is where a claim's devices count: in host memory alone while it is ordered out and has answered that it is, in both places
// while it leaves or comes back.
func countsOf(claim *resourcev1.ResourceClaim) where {
	switch s := StandingOf(claim); {
	case s.Order > 0 && s.Out && s.Last == s.Order:
		return inHost
	case s.Order > 0 && !s.Refused, s.Partly:
		return onBoth
	}
	return onGPU
}

// turn is what is being written of a claim's suspension: that an order is made, or that it ends. Until an event tells of it the claim
// counts in both places.
type turn struct {
	order int64
	made  bool
}

// noted is what a claim has, with what is being written of it. A note that came true ends.
func (l *Ledger) noted(key string, claim *resourcev1.ResourceClaim, takings []taking) []taking {
	n, is := l.turns[key]
	if !is {
		return takings
	}
	if len(takings) == 0 || (StandingOf(claim).Order == n.order) == n.made {
		delete(l.turns, key)
		return takings
	}
	return counted(takings, onBoth)
}

func counted(takings []taking, at where) []taking {
	takings = slices.Clone(takings)
	for i := range takings {
		if _, form, _ := dra.Parse(takings[i].device); form == dra.Shared {
			takings[i].counts = at
		}
	}
	return takings
}

func sameDevice(a, b taking) bool {
	a.counts, b.counts = 0, 0
	return a == b
}

// Suspend notes that a claim is ordered out of its GPUs: from now on its memory counts in the host as well. The error is [ErrTaken],
// where the host has no room for it, and nothing is noted then.
func (l *Ledger) Suspend(key string, order int64) error {
	l.flush()
	g := l.claims[key]
	if g == nil {
		return fmt.Errorf("%w: claim %s has nothing", ErrTaken, key)
	}
	var taken []alloc.Assignment
	for _, a := range l.assignments(counted(g.takings, inHost)) {
		if err := l.inv.Reserve(a); err != nil {
			l.takeBack(taken)
			return fmt.Errorf("%w: %w", ErrTaken, err)
		}
		taken = append(taken, a)
	}
	l.takeBack(taken)
	l.note(key, g, turn{order, true})
	return nil
}

// Resume notes that the order ends by which a claim is out of its GPUs: from now on it counts there as well. The error is [ErrTaken],
// where they have no room for it, and nothing is noted then.
func (l *Ledger) Resume(key string, order int64) error {
	l.flush()
	g := l.claims[key]
	if g == nil {
		return fmt.Errorf("%w: claim %s has nothing", ErrTaken, key)
	}
	if l.OnGPUs(key) {
		l.note(key, g, turn{order, false})
		return nil
	}
	var taken []alloc.Assignment
	defer func() { l.takeBack(taken) }()
	for i := range g.takings {
		if p := l.pools[g.takings[i].pool]; p == nil || p.byName[g.takings[i].device] == nil {
			return fmt.Errorf("%w: device %s of pool %s is not published", ErrTaken, g.takings[i].device, g.takings[i].pool)
		}
	}
	for _, a := range l.Home(key) {
		at, there := l.inv.Position(a.Name)
		if !there {
			return fmt.Errorf("%w: node %s is not there", ErrTaken, a.Name)
		}
		n := l.inv.Node(at)
		for i := range n.GPUs {
			g := &n.GPUs[i]
			if (g.Fence != "" || g.Fault != "") && slices.ContainsFunc(a.Shares, func(s alloc.Share) bool { return s.UUID == g.UUID }) {
				return fmt.Errorf("%w: GPU %s of node %s takes no shares", ErrTaken, g.UUID, a.Name)
			}
		}
		if err := l.inv.Reserve(a); err != nil {
			return fmt.Errorf("%w: %w", ErrTaken, err)
		}
		taken = append(taken, a)
	}
	l.takeBack(taken)
	taken = nil
	l.note(key, g, turn{order, false})
	return nil
}

func (l *Ledger) takeBack(all []alloc.Assignment) {
	for _, a := range all {
		l.inv.Unreserve(a)
	}
}

func (l *Ledger) note(key string, g *holding, n turn) {
	l.turns[key] = n
	g.takings = counted(g.takings, onBoth)
	l.locate(g)
}

// Forget ends a note of [Ledger.Suspend] or [Ledger.Resume] of which nothing was written. claim is what is there.
func (l *Ledger) Forget(key string, claim *resourcev1.ResourceClaim) {
	if _, is := l.turns[key]; is {
		delete(l.turns, key)
		l.SetClaim(key, claim)
	}
}

// Turning reports whether something is being written of a claim's suspension, and whether that is an order.
func (l *Ledger) Turning(key string) (made, is bool) {
	n, is := l.turns[key]
	return n.made, is
}

// OnGPUs reports whether a claim counts on GPUs: one that is suspended does not.
func (l *Ledger) OnGPUs(key string) bool {
	if g := l.claims[key]; g != nil {
		return slices.ContainsFunc(g.takings, func(t taking) bool { return t.counts != inHost })
	}
	_, flies := l.flights[key]
	return flies
}

// Home is what a claim has of its GPUs while it is there, or what is reserved for it.
func (l *Ledger) Home(key string) []alloc.Assignment {
	g := l.claims[key]
	if g == nil || !slices.ContainsFunc(g.takings, func(t taking) bool { return t.counts != onGPU }) {
		return l.Held(key)
	}
	return l.assignments(counted(g.takings, onGPU))
}

// Leaves says why a claim's shares cannot leave their GPUs, as far as their devices tell; empty for those that can.
func (l *Ledger) Leaves(key string) string {
	g := l.claims[key]
	if g == nil {
		return "it has nothing"
	}
	for i := range g.takings {
		t := &g.takings[i]
		p := l.pools[t.pool]
		var d *device
		if p != nil {
			d = p.byName[t.device]
		}
		switch {
		case d == nil || d.gpu == nil || !d.shared || d.profile != "" || !d.is(v1alpha1.AttributeForm, resourcev1.DeviceAttribute{StringValue: ptr.To(v1alpha1.FormShared)}):
			return "it has no plain share of a GPU"
		case !d.is(v1alpha1.AttributeSuspends, resourcev1.DeviceAttribute{BoolValue: ptr.To(true)}):
			return "its GPU does not suspend shares"
		case t.swap > 0:
			return "it is a swap share"
		case t.memory == 0 || t.slots > 1:
			return "it has no memory of its own, or several slots"
		case t.counts != onGPU:
			return "it is on its way already"
		}
	}
	return ""
}

// is reports whether an attribute has a value.
func (d *device) is(name resourcev1.QualifiedName, want resourcev1.DeviceAttribute) bool {
	got, ok := d.attribute(name)
	return ok && equality.Semantic.DeepEqual(got, want)
}
