package scheduler

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue/reclaim"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// seat is what is kept for pods of one workload that move, until their owner has made them again.
type seat struct {
	id   string // under which it counts in the workloads
	gang string // of which they are, empty for a pod alone
	pods []moved
	// awaits are claims whose devices are to come free, and over is when nothing is kept any more.
	awaits map[string]bool
	over   time.Time
	ready  bool
	// taken is what the pods have instead that were made again, nil until then.
	taken *Taking
}

// moved is a pod that moves, what it asks, and where it goes.
type moved struct {
	pod   *corev1.Pod
	asks  alloc.Pod
	place alloc.Assignment
}

// move finds out which candidates may move, and what their pods ask once they are made again.
func (s *search) move() {
	s.again = map[types.UID]*corev1.Pod{}
	for i := range s.candidates {
		c := &s.candidates[i]
		if c.Ending || !s.engine.queues.set.Movable(c.ID) {
			continue
		}
		c.Movable, c.Gang = true, gang.Gang{Size: 1, Minimum: 1, ShareGPUs: true}
		if first := s.pods[i][0]; s.engine.Gangs.In(first) {
			_, state := s.engine.Gangs.state(first)
			c.Gang = state.Gang
		}
		for j, pod := range s.pods[i] {
			c.Members[j].Again = s.made(pod)
		}
	}
}

// made is a pod as its owner makes it again, nil where it is not known what it asks then.
func (s *search) made(pod *corev1.Pod) *gang.Member {
	e := s.engine
	claims, existing, err := e.claimsOf(pod)
	for i := range claims {
		claims[i].Allocation = nil
	}
	for _, claim := range existing {
		if len(claim.Status.ReservedFor) > 1 {
			return nil // what it has stays with the others
		}
	}
	copied := *pod
	copied.UID, copied.Spec.NodeName, copied.Status = "again "+pod.UID, "", corev1.PodStatus{}
	var asks demand.Demand
	if err == nil {
		asks, err = demand.Of(&copied, claims, e.ledger)
	}
	if err != nil {
		return nil
	}
	s.again[pod.UID] = &copied
	inv := e.ledger.Inventory()
	return &gang.Member{Key: string(pod.UID), Pod: *asks.Pod(), Lets: func(node int) bool {
		name := inv.Node(node).Name
		return !s.excluded[name] && s.filters.Lets(&copied, name, s.mayEnd[name])
	}}
}

// seat keeps for those who move what a plan says.
func (e *Engine) seat(s *search, plan *reclaim.Plan, made *Taking) {
	by := map[int]*seat{}
	for i := range plan.Moves {
		m := &plan.Moves[i]
		pod := s.pods[m.Candidate][m.Member]
		one := by[m.Candidate]
		if one == nil {
			one = &seat{id: "moved " + string(pod.UID), awaits: maps.Clone(made.awaits), over: made.over, gang: e.Gangs.ID(pod)}
			by[m.Candidate] = one
			made.seats = append(made.seats, one)
		}
		one.pods = append(one.pods, moved{pod, s.candidates[m.Candidate].Members[m.Member].Again.Pod, m.Assignment})
	}
	for _, one := range made.seats {
		e.queues.set.Keep(one.id, one.pods[0].pod, e.charges(one.places()))
		e.hold(one)
	}
	e.queues.takings.seats = append(e.queues.takings.seats, made.seats...)
}

func (s *seat) places() (all []alloc.Assignment) {
	for i := range s.pods {
		all = append(all, s.pods[i].place)
	}
	return all
}

// hold has the inventory keep the devices of a seat.
func (e *Engine) hold(s *seat) {
	for _, a := range s.places() {
		e.ledger.Inventory().SetAside(a)
	}
}

// vacate ends a seat.
func (e *Engine) vacate(s *seat) {
	at := slices.Index(e.queues.takings.seats, s)
	if at < 0 {
		return
	}
	e.queues.takings.seats = slices.Delete(e.queues.takings.seats, at, at+1)
	e.queues.set.Forget(s.id)
	for _, a := range s.places() {
		e.ledger.Inventory().PutBack(a)
	}
	e.keepAll()
	e.freed.Add(1)
}

// abandon ends what is kept for those who move in a plan that was given up: some of them have not ended.
func (e *Engine) abandon(t *Taking) {
	for _, s := range t.seats {
		if e.vacate(s); s.taken != nil {
			e.drop(s.taken)
		}
	}
}

// followSeats looks which seats are ready and which are over, and gives them to pods that were made again.
func (e *Engine) followSeats() {
	t := &e.queues.takings
	if len(t.seats) == 0 {
		return
	}
	for _, pod := range e.queues.set.Waiting() {
		e.offer(pod)
	}
	for _, s := range slices.Clone(t.seats) {
		e.came(s.awaits)
		if len(s.awaits) == 0 && !s.ready {
			s.ready, s.over = true, e.clock().Add(takeLimit)
		}
		if e.clock().After(s.over) || !e.there(s.places()) {
			e.vacate(s)
			continue
		}
		e.hold(s)
	}
}

// offer gives a pod that waits, and its gang, the seat that is kept for it.
func (e *Engine) offer(pod *corev1.Pod) {
	id := e.queues.set.ID(pod.UID)
	if id == "" || pod.Spec.NodeName != "" || e.queues.takings.all[id] != nil {
		return
	}
	for _, s := range e.queues.takings.seats {
		waiting := []*corev1.Pod{pod}
		if s.gang != e.Gangs.ID(pod) {
			continue
		}
		if s.gang != "" {
			_, state := e.Gangs.state(pod)
			if state.Reason != "" {
				continue
			}
			waiting, _ = e.Gangs.pair(&state)
		}
		if comers := e.comers(s, waiting); comers != nil {
			e.sit(s, id, comers)
			return
		}
	}
}

// comers are pods that wait for each of those who moved: with the same controller, and asking the same. Without one for each it is nil.
func (e *Engine) comers(s *seat, waiting []*corev1.Pod) (comers []*corev1.Pod) {
	free := slices.Clone(waiting)
	for i := range s.pods {
		one := &s.pods[i]
		at := slices.IndexFunc(free, func(p *corev1.Pod) bool {
			if p.UID == one.pod.UID || p.DeletionTimestamp != nil || !sameOwner(p, one.pod) {
				return false
			}
			u, err := e.Read(p)
			return err == nil && u.Demand.Node() == "" && reflect.DeepEqual(*u.Demand.Pod(), one.asks)
		})
		if at < 0 {
			return nil
		}
		comers = append(comers, free[at])
		free = slices.Delete(free, at, at+1)
	}
	return comers
}

func sameOwner(a, b *corev1.Pod) bool {
	x, y := metav1.GetControllerOfNoCopy(a), metav1.GetControllerOfNoCopy(b)
	return x != nil && y != nil && x.UID == y.UID
}

// sit keeps for pods that were made again what was kept for those who moved.
func (e *Engine) sit(s *seat, id string, comers []*corev1.Pod) {
	t := &Taking{id: id, queue: e.queues.set.QueueOf(comers[0].UID), pods: map[string]*corev1.Pod{}, awaits: s.awaits, Until: s.over, over: s.over}
	t.Reason = fmt.Sprintf("waits for the place that is kept for it on node %s, until %s", s.pods[0].place.Name, s.over.UTC().Format(time.TimeOnly))
	for i, pod := range comers {
		t.pods[keyOf(pod)] = pod
		t.placements = append(t.placements, gang.Placement{Member: gang.Member{Key: keyOf(pod), Pod: s.pods[i].asks}, Assignment: s.pods[i].place})
	}
	e.vacate(s)
	if e.queues.set.Agree(id, e.charges(s.places()), nil, nil) != nil {
		return // its queue does not let it any more
	}
	s.taken = t
	e.queues.takings.all[id] = t
	e.keep(t)
}

// keepAll has the inventory keep again what is kept: devices that were put back may be partly another's.
func (e *Engine) keepAll() {
	for _, t := range e.queues.takings.all {
		e.keep(t)
	}
	for _, s := range e.queues.takings.seats {
		e.hold(s)
	}
}

// came forgets claims whose devices have come free.
func (e *Engine) came(awaits map[string]bool) {
	for key := range awaits {
		if !e.ledger.OnGPUs(key) {
			delete(awaits, key)
		}
	}
}

// there reports whether all nodes of places are there.
func (e *Engine) there(places []alloc.Assignment) bool {
	for i := range places {
		if _, there := e.ledger.Inventory().Position(places[i].Name); !there {
			return false
		}
	}
	return true
}

// retake keeps again what was kept for a unit that could not be bound there, until the time for that is over.
func (e *Engine) retake(u *Unit) {
	t := u.taking
	u.taking = nil
	if t == nil || e.queues.takings.all[t.id] != nil || e.clock().After(t.over) || !e.stands(t) {
		return
	}
	var places []alloc.Assignment
	for i := range t.placements {
		places = append(places, t.placements[i].Assignment)
	}
	e.queues.set.Retain(t.id, e.charges(places))
	e.queues.takings.all[t.id] = t
	e.keep(t)
	for _, pod := range t.pods {
		delete(e.queues.tried, pod.UID)
	}
}
