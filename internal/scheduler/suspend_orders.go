package scheduler

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/scheduler/ledger"
)

// Reasons of events of pods that are suspended for others.
const (
	ReasonSuspended  = "Suspended"
	ReasonResumed    = "Resumed"
	ReasonNotAllowed = "SuspensionRefused"
)

// Order has a claim leave its GPUs, or ends an earlier order.
type Order struct {
	// Claim is what was seen of the claim: it is written if nothing has changed since that matters.
	Claim *resourcev1.ResourceClaim
	// Suspension is what is written, nil where the order of that number ends.
	Suspension *v1alpha1.Suspension
	Number     int64
}

// key is the claim's "namespace/name".
func (o *Order) key() string { return o.Claim.Namespace + "/" + o.Claim.Name }

// Changes are what is to be written and said since it was asked last.
type Changes struct {
	// Ends are orders that end.
	Ends []Order
	// Evictions are victims that end because they could not be suspended.
	Evictions []Eviction
	// Said are events of pods.
	Said []Said
}

// Eviction is victims of a plan that are to end.
type Eviction struct {
	Taking  *Taking
	Victims []Victim
}

// Said is an event of a pod.
type Said struct {
	Pod           *corev1.Pod
	Warning       bool
	Reason, Words string
}

// suspensions is what the engine knows of claims that are ordered out of their GPUs.
type suspensions struct {
	changes Changes
	// asked is since when an order has no answer, by claim, as far as this scheduler knows.
	asked map[string]time.Time
	// ending are the numbers of orders that are being ended, by claim.
	ending map[string]int64
	// told are claims with devices or orders.
	told map[string]*resourcev1.ResourceClaim
	// idle are claims whose orders serve nobody: refused ones, and those of claims without devices.
	idle map[string]bool
	// refused are pods that could not be suspended, and until when they are not tried again.
	refused map[types.UID]time.Time
	// woken is of freed, when those that sleep were given a turn last.
	woken uint64
}

func (s *suspensions) init() {
	s.asked, s.ending, s.idle, s.refused = map[string]time.Time{}, map[string]int64{}, map[string]bool{}, map[types.UID]time.Time{}
	s.told = map[string]*resourcev1.ResourceClaim{}
}

// Changes takes what is to be written and said.
func (e *Engine) Changes() Changes {
	s := &e.queues.suspensions
	all := s.changes
	s.changes = Changes{}
	return all
}

// Hush forgets what would be said: whoever led before has said it.
func (e *Engine) Hush() { e.queues.suspensions.changes.Said = nil }

// Suspended counts the pods that are out of their GPUs for others.
func (e *Engine) Suspended() (n int) {
	for _, some := range e.queues.set.Suspended() {
		n += some
	}
	return n
}

// standing is a claim by its key, as the ledger was told of it, and where its suspension stands. What else knows claims may hear of them
// before or after.
func (e *Engine) standing(key string) (*resourcev1.ResourceClaim, ledger.Standing) {
	claim := e.queues.suspensions.told[key]
	return claim, ledger.StandingOf(claim)
}

// heardOrder takes in where a claim's suspension stands now, and tells its pods.
func (e *Engine) heardOrder(before, after *resourcev1.ResourceClaim) {
	s := &e.queues.suspensions
	key := cmp.Or(after, before).Namespace + "/" + cmp.Or(after, before).Name
	was, is := ledger.StandingOf(before), ledger.StandingOf(after)
	if number, ends := s.ending[key]; ends && is.Order != number {
		delete(s.ending, key)
	}
	delete(s.idle, key)
	if delete(s.told, key); has(after) || ordered(after) {
		s.told[key] = after
	}
	if ordered(after) && (is.Order == 0 || is.Refused) {
		s.idle[key] = true
	}
	if is.Order == 0 || is.Refused || is.Out {
		delete(s.asked, key)
	} else if _, known := s.asked[key]; !known || was.Order != is.Order {
		s.asked[key] = e.clock()
	}
	if before != nil && has(after) {
		e.sayOrder(after, &was, &is)
	}
}

// sayOrder tells the pods of a claim that it is out of its GPUs, or back.
func (e *Engine) sayOrder(claim *resourcev1.ResourceClaim, was, is *ledger.Standing) {
	said := &e.queues.suspensions.changes.Said
	switch {
	case is.Order > 0 && is.Out && !was.Out:
		read, _ := v1alpha1.ParseSuspension(claim.Annotations[v1alpha1.SuspendAnnotation]) // it has an order
		for _, pod := range e.users(claim) {
			*said = append(*said, Said{Pod: pod, Reason: ReasonSuspended, Words: suspendedFor(read.Whom(), e.ruleOf(pod))})
		}
	case was.Partly && !is.Partly:
		for _, pod := range e.users(claim) {
			*said = append(*said, Said{Pod: pod, Reason: ReasonResumed, Words: "its memory is back on its GPU, and its programs go on"})
		}
	}
}

// users are the pods for which a claim is reserved, as far as they are known.
func (e *Engine) users(claim *resourcev1.ResourceClaim) (all []*corev1.Pod) {
	for _, user := range claim.Status.ReservedFor {
		if pod := e.queues.set.Object(user.UID); pod != nil {
			all = append(all, pod)
		}
	}
	return all
}

// ruleOf is that by which a pod is a victim of a plan, empty where no plan says so.
func (e *Engine) ruleOf(pod *corev1.Pod) string {
	for _, t := range e.queues.takings.all {
		for i := range t.Victims {
			if t.Victims[i].Pod.UID == pod.UID {
				return string(t.Victims[i].Rule)
			}
		}
	}
	return ""
}

// end has an order end, once.
func (e *Engine) end(key string) {
	s := &e.queues.suspensions
	claim, is := e.standing(key)
	if claim == nil || s.ending[key] != 0 && s.ending[key] == is.Order {
		return
	}
	if _, there := claim.Annotations[v1alpha1.SuspendAnnotation]; !there {
		return
	}
	number := cmp.Or(is.Order, unreadable)
	if s.ending[key] == number {
		return
	}
	s.ending[key] = number
	s.changes.Ends = append(s.changes.Ends, Order{Claim: claim, Number: is.Order})
}

// unreadable is the number of an order that does not read.
const unreadable = -1

// tidy ends orders that serve nobody. Those of plans are the plans'.
func (e *Engine) tidy() {
	s := &e.queues.suspensions
	for _, key := range slices.Sorted(maps.Keys(s.idle)) {
		if !slices.ContainsFunc(e.victims(), func(v *Victim) bool { return v.ordered(key) }) {
			e.end(key)
		}
	}
	for uid, until := range s.refused {
		if e.clock().After(until) {
			delete(s.refused, uid)
		}
	}
}

// victims are those of all plans.
func (e *Engine) victims() (all []*Victim) {
	for _, t := range e.queues.takings.all {
		for i := range t.Victims {
			all = append(all, &t.Victims[i])
		}
	}
	return all
}

// ordered reports whether a claim is ordered out of its GPUs because of the victim.
func (v *Victim) ordered(key string) bool {
	return slices.ContainsFunc(v.Orders, func(o Order) bool { return o.key() == key })
}

// Ordered notes how the writing of an order has ended. An error says that it is not written. Anybody may call it.
func (e *Engine) Ordered(o *Order, err error) {
	if err == nil {
		return // an event tells
	}
	key := o.key()
	e.tell(func() {
		s := &e.queues.suspensions
		claim, _ := e.standing(key)
		e.ledger.Forget(key, claim)
		delete(s.ending, key)
		e.recount(key)
		if o.Suspension == nil {
			return
		}
		for _, t := range e.queues.takings.all {
			for i := range t.Victims {
				if v := &t.Victims[i]; v.ordered(key) {
					e.endInstead(t, v.work, "its suspension could not be ordered: "+oneLine(err))
					return
				}
			}
		}
	})
	e.freed.Add(1)
}

// recount counts a claim in its queue as it stands now.
func (e *Engine) recount(key string) {
	claim, _ := e.standing(key)
	e.touchClaim(key, claim)
	e.settleClaim(key)
}
