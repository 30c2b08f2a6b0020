package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue/reclaim"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
	"github.com/divvy-gpu/divvy/internal/scheduler/ledger"
)

const (
	// answerLimit is the least time that a node's agent has to suspend a victim, before that ends in its place.
	answerLimit = 30 * time.Second
	// refusedLimit is how long a pod that could not be suspended is ended instead.
	refusedLimit = time.Minute
)

// putOut has victims of a plan leave their GPUs instead of ending, where that can be: their claims let it, the filters let the demander
// although their pods stay, and their host has room.
func (e *Engine) putOut(s *search, plan *reclaim.Plan, made *Taking) {
	var able []string
	claims := map[types.UID][]*resourcev1.ResourceClaim{}
	for i := range plan.Victims {
		v := &plan.Victims[i]
		if v.Rule == reclaim.RuleMove || len(v.Members) < len(s.candidates[v.Candidate].Members) {
			continue
		}
		all := true
		for _, j := range v.Members {
			pod := s.pods[v.Candidate][j]
			claims[pod.UID] = e.removable(pod, s.now)
			all = all && len(claims[pod.UID]) > 0
		}
		if all {
			able = append(able, s.candidates[v.Candidate].ID)
		}
	}
	able = s.staying(plan, made, able)
	held := e.holdSwap(plan)
	for _, work := range able {
		e.putOutWork(made, work, claims)
	}
	for _, a := range held {
		e.ledger.Inventory().Unreserve(a)
	}
}

// putOutWork notes that all victims of one workload are suspended. Where their hosts have no room, none is.
func (e *Engine) putOutWork(made *Taking, work string, claims map[types.UID][]*resourcev1.ResourceClaim) {
	var noted []Order
	for i := range made.Victims {
		v := &made.Victims[i]
		if v.work != work {
			continue
		}
		for _, claim := range claims[v.Pod.UID] {
			// An order that nobody answered leaves no number behind, so the time keeps the next one apart from it.
			number := max(ledger.StandingOf(claim).Last+1, e.clock().Unix())
			o := Order{Claim: claim, Number: number, Suspension: &v1alpha1.Suspension{Order: number, For: made.first, Queue: made.queue}}
			if e.ledger.Suspend(o.key(), number) != nil {
				for k := range noted {
					e.ledger.Forget(noted[k].key(), noted[k].Claim)
				}
				return
			}
			noted = append(noted, o)
		}
	}
	for i := range made.Victims {
		v := &made.Victims[i]
		if v.work != work {
			continue
		}
		v.Orders = slices.DeleteFunc(slices.Clone(noted), func(o Order) bool { return !slices.Contains(claims[v.Pod.UID], o.Claim) })
		v.Grace = max(v.Grace, answerLimit)
		e.queues.set.Sleep(v.Pod.UID, true)
		for k := range v.Orders {
			e.recount(v.Orders[k].key())
		}
	}
}

// holdSwap has the inventory hold what the demander takes of its hosts for swap shares, so that no victim is suspended into it.
func (e *Engine) holdSwap(plan *reclaim.Plan) (held []alloc.Assignment) {
	inv := e.ledger.Inventory()
	for i := range plan.Placements {
		a := &plan.Placements[i].Assignment
		one := alloc.Assignment{Node: -1, Name: a.Name}
		for k := range a.Shares {
			if s := &a.Shares[k]; s.SwapMemory > 0 {
				one.Shares = append(one.Shares, alloc.Share{UUID: s.UUID, SwapMemory: s.SwapMemory, Away: true})
			}
		}
		if len(one.Shares) > 0 && inv.Reserve(one) == nil {
			held = append(held, one)
		}
	}
	return held
}

// removable are the claims of a pod, if all of them can leave their GPUs; none else.
func (e *Engine) removable(pod *corev1.Pod, now time.Time) (all []*resourcev1.ResourceClaim) {
	pod = e.meet(pod) // it may have begun to run since
	if pod == nil || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
		return nil
	}
	if _, refused := e.queues.suspensions.refused[pod.UID]; refused {
		return nil
	}
	keys := e.queues.set.Claims(pod.UID)
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name != nil && !slices.Contains(keys, pod.Namespace+"/"+*name) {
			return nil
		}
	}
	for _, key := range keys {
		claim, is := e.standing(key)
		if claim == nil || !e.mayLeave(key, claim, &is, pod.UID, now) {
			return nil
		}
		all = append(all, claim)
	}
	return all
}

// mayLeave reports whether a claim can be ordered out of its GPUs.
func (e *Engine) mayLeave(key string, claim *resourcev1.ResourceClaim, is *ledger.Standing, user types.UID, now time.Time) bool {
	_, ordered := claim.Annotations[v1alpha1.SuspendAnnotation]
	_, turning := e.ledger.Turning(key)
	switch users := claim.Status.ReservedFor; {
	case ordered, turning, is.Partly, !is.RefusedAt.IsZero() && now.Sub(is.RefusedAt.Time).Abs() < refusedLimit: // a node's clock may be wrong
		return false
	case claim.DeletionTimestamp != nil, !has(claim), !onlyOurs(claim), len(users) != 1 || users[0].UID != user:
		return false
	case slices.ContainsFunc(claim.Status.Allocation.Devices.Results, func(r resourcev1.DeviceRequestAllocationResult) bool { return r.AdminAccess != nil && *r.AdminAccess }):
		return false
	}
	one := demand.Claim{UID: claim.UID, Namespace: claim.Namespace, Name: claim.Name, Spec: &claim.Spec, Allocation: claim.Status.Allocation}
	given, ok := demand.Adopt(&one, e.ledger)
	whole := slices.ContainsFunc(given.Shares, func(s alloc.Share) bool { return s.Whole || s.Profile != "" || s.NIC != "" })
	return ok && !whole && e.ledger.Leaves(key) == ""
}

// staying are those of some workloads whose pods may stay: the filters let the demander onto their nodes nevertheless.
func (s *search) staying(plan *reclaim.Plan, made *Taking, able []string) []string {
	come := s.come(plan)
	for again := true; again; {
		again = false
		for _, node := range slices.Sorted(maps.Keys(come)) {
			for len(able) > 0 && !s.filters.LetsAll(come[node], node, s.ended(made, node, able)) {
				at := s.last(made, node, able)
				if at < 0 {
					break // it is not for their sake
				}
				able, again = slices.Delete(able, at, at+1), true
			}
		}
	}
	return able
}

// last is the position of the last of some workloads that has a victim on a node, negative for none.
func (s *search) last(made *Taking, node string, able []string) int {
	for at := len(able) - 1; at >= 0; at-- {
		if slices.ContainsFunc(made.Victims, func(v Victim) bool { return v.work == able[at] && v.Pod.Spec.NodeName == node }) {
			return at
		}
	}
	return -1
}

// ended are the pods that go from a node by a plan, where those of some workloads stay.
func (s *search) ended(made *Taking, node string, stay []string) (all []*corev1.Pod) {
	for i := range made.Victims {
		if v := &made.Victims[i]; v.Pod.Spec.NodeName == node && !slices.Contains(stay, v.work) {
			all = append(all, v.Pod)
		}
	}
	return append(all, s.ending(node)...)
}

// endInstead has the victims of one workload end that could not be suspended, within their grace from now on. Their pods are told why.
func (e *Engine) endInstead(t *Taking, work, why string) {
	now := e.clock()
	eviction := Eviction{Taking: t}
	var ends []string
	for i := range t.Victims {
		v := &t.Victims[i]
		if v.work != work || len(v.Orders) == 0 {
			continue
		}
		for k := range v.Orders {
			if key := v.Orders[k].key(); e.ledger.OnGPUs(key) {
				ends = append(ends, key)
			}
		}
		v.Orders, v.Grace = nil, v.ends
		v.Note = note(t.first, t.queue, v)
		e.queues.set.Sleep(v.Pod.UID, false)
		e.queues.suspensions.refused[v.Pod.UID] = now.Add(refusedLimit)
		e.queues.suspensions.changes.Said = append(e.queues.suspensions.changes.Said,
			Said{Pod: v.Pod, Warning: true, Reason: ReasonNotAllowed, Words: fmt.Sprintf("it is not suspended but ended: %s", why)})
		eviction.Victims = append(eviction.Victims, *v)
		if end := now.Add(v.Grace); end.After(t.Until) {
			t.Until = end
		}
	}
	for _, key := range ends { // programs that are told to end may need their GPU for that
		e.end(key)
	}
	if len(eviction.Victims) > 0 {
		e.queues.suspensions.changes.Evictions = append(e.queues.suspensions.changes.Evictions, eviction)
		t.over, t.Reason = t.Until.Add(takeMargin), t.reason()
	}
}

// answers looks how the victims of a plan answer that are to be suspended. It reports false where the plan waits for others that do
// not leave their GPUs.
func (e *Engine) answers(t *Taking) bool {
	now := e.clock()
	for i := range t.Victims {
		v := &t.Victims[i]
		for k := range v.Orders {
			if why := e.fails(&v.Orders[k], now.After(t.made.Add(v.Grace)), v.Grace); why != "" {
				e.endInstead(t, v.work, why)
				break
			}
		}
	}
	for key := range t.awaits {
		if e.queues.suspensions.idle[key] && !slices.ContainsFunc(t.Victims, func(v Victim) bool { return v.awaits(e, key) }) {
			return false
		}
	}
	return true
}

// fails says why an order does not come to its end; empty while it may. Late tells that its time is over.
func (e *Engine) fails(o *Order, late bool, grace time.Duration) string {
	claim, is := e.standing(o.key())
	_, turning := e.ledger.Turning(o.key())
	switch {
	case claim == nil || claim.UID != o.Claim.UID || !has(claim): // it has gone
	case is.Refused && is.Order == o.Number:
		return "the agent of its node refuses: " + cmp.Or(is.Why, "it says no reason")
	case is.Order != o.Number && !turning:
		return "somebody else has ended its suspension"
	case late && e.ledger.OnGPUs(o.key()):
		return fmt.Sprintf("the agent of its node has not suspended it within %s", grace)
	}
	return ""
}

// awaits reports whether a victim has a claim.
func (v *Victim) awaits(e *Engine, key string) bool {
	return slices.Contains(e.queues.set.Claims(v.Pod.UID), key)
}
