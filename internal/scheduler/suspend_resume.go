package scheduler

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// rouse gives those that sleep a turn once room may have come since their last.
func (e *Engine) rouse() {
	s := &e.queues.suspensions
	if freed := e.freed.Load(); s.woken != freed {
		s.woken = freed
		for _, id := range e.queues.set.Sleepers() {
			e.queues.set.Turns.Add(id)
		}
	}
}

// Rouse has those that sleep come back whose turn it is. It is called from time to time, because quotas and the bound of an answer
// change without an event. It returns a pod that is to be tried before the others of them, nil for none.
func (e *Engine) Rouse() *corev1.Pod {
	set, s := e.queues.set, &e.queues.suspensions
	sleepers := set.Sleepers()
	if len(sleepers) == 0 {
		return nil
	}
	if !set.On() {
		quiet := s.woken == e.freed.Load() && !e.Waiting.Due() // all that wait had their turns
		s.woken = e.freed.Load()
		slices.SortFunc(sleepers, func(a, b string) int {
			x, y := set.Spoken(a), set.Spoken(b)
			return cmp.Or(cmp.Compare(priority(y), priority(x)), x.CreationTimestamp.Compare(y.CreationTimestamp.Time), strings.Compare(a, b))
		})
		for _, id := range sleepers {
			if quiet || !e.Waiting.before(set.Spoken(id)) {
				e.resume(id)
			}
		}
		return nil
	}
	for _, id := range sleepers {
		set.Turns.Add(id)
	}
	return e.firstAwake()
}

// firstAwake is the pod whose turn it is, nil where there is none. Workloads that sleep and come before it have their turn here.
func (e *Engine) firstAwake() *corev1.Pod {
	set := e.queues.set
	for {
		id, ok := set.Turns.First()
		if !ok {
			return nil
		}
		e.resume(id)
		if pod := set.Pod(id); pod != nil {
			return pod
		}
		set.Turns.Remove(id)
	}
}

// resume has a workload come back that sleeps, if its quota lets it, nobody else has what it needs of its GPUs, and nothing of that is
// kept for others. It reports whether it comes back.
func (e *Engine) resume(id string) bool {
	set := e.queues.set
	orders := e.ends(set.Asleep(id))
	// What is on its GPUs all along uses them, whatever its queue may have: there only the order ends.
	sleeps := slices.ContainsFunc(orders, func(o Order) bool { return !e.ledger.OnGPUs(o.key()) })
	if len(orders) == 0 || sleeps && set.Check(id, set.Back(id)) != nil {
		return false
	}
	for i := range orders {
		if e.ledger.Resume(orders[i].key(), orders[i].Number) != nil {
			for k := range orders[:i] {
				e.ledger.Forget(orders[k].key(), orders[k].Claim)
			}
			return false
		}
	}
	for i := range orders {
		e.queues.suspensions.ending[orders[i].key()] = orders[i].Number
		e.recount(orders[i].key())
	}
	set.Settle()
	e.queues.suspensions.changes.Ends = append(e.queues.suspensions.changes.Ends, orders...)
	return true
}

// ends are the orders of claims as they end once all of these may come back, as far as that does not depend on room; none else.
func (e *Engine) ends(keys []string) (orders []Order) {
	for _, key := range keys {
		claim, is := e.standing(key)
		if _, turning := e.ledger.Turning(key); claim == nil || is.Order == 0 || turning || e.queues.suspensions.ending[key] != 0 || !e.settled(key) {
			return nil
		}
		orders = append(orders, Order{Claim: claim, Number: is.Order})
	}
	return orders
}

// settled reports whether a claim is out of its GPUs and nothing of these is kept for others, or is on them because its agent has not
// answered for too long.
func (e *Engine) settled(key string) bool {
	if e.ledger.OnGPUs(key) {
		asked, waits := e.queues.suspensions.asked[key]
		return waits && e.clock().Sub(asked) > answerLimit
	}
	for _, place := range e.ledger.Home(key) {
		if e.kept(&place) {
			return false
		}
	}
	return true
}
