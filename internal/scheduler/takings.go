package scheduler

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue/reclaim"
	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// takings are what is taken back for workloads at the moment.
type takings struct {
	all map[string]*Taking // by workload
	// next is when the next search for victims may begin: searches have a part of one processor.
	next time.Time
	// wants are workloads that found nobody or were not searched for, to be tried again.
	wants map[string]want
	// since is when nobody was found for a workload first, or a plan was made that was given up.
	since map[string]time.Time
	// stay are victims that an API server did not let end, and until when they are left out of plans: otherwise they would be in the
	// next one too, and the others of it would end in vain.
	stay map[types.UID]time.Time
	// seats are what is kept for pods that move and were not made again yet.
	seats []*seat
}

// want is when a workload is searched for again, and why nobody ends for it until then.
type want struct {
	at  time.Time
	why error
}

const (
	// searchPart is how many times what a search took is waited before the next: searches have a fifth of one processor.
	searchPart = 4
	// searchAgain is the time until a workload for which nobody may end is searched for again: pods come to their minimum run time,
	// and queues above their entitlements, without an event.
	searchAgain = time.Second
	// takeMargin is how long after the last grace devices are kept for a workload whose victims have not ended, and takeLimit how
	// long they are kept for one that does not come for them.
	takeMargin = 30 * time.Second
	takeLimit  = 30 * time.Second
	// stayLimit is how long a victim that could not be ended is left out of plans.
	stayLimit = time.Minute
	// mostTries bounds how often places are sought anew because filters refuse them.
	mostTries = 4
)

var (
	errLater = errors.New("the next search is due later")
	errNever = errors.New("nobody may end for it")
)

func (t *takings) init() {
	t.all, t.wants, t.since, t.stay = map[string]*Taking{}, map[string]want{}, map[string]time.Time{}, map[types.UID]time.Time{}
}

// forget ends what is noted of a workload that waits.
func (t *takings) forget(id string) {
	delete(t.wants, id)
	delete(t.since, id)
}

// Filters ask Kubernetes whether pods are let onto nodes from which others have gone.
type Filters interface {
	// Lets reports whether a pod could be let onto a node if all that may end there did.
	Lets(pod *corev1.Pod, node string, mayEnd []*corev1.Pod) bool
	// LetsAll reports whether pods are let onto a node together once others have ended.
	LetsAll(pods []*corev1.Pod, node string, ended []*corev1.Pod) bool
}

// Taking is what is taken back for a workload: others end, and their devices are kept for it.
type Taking struct {
	// Victims end for the workload.
	Victims []Victim
	// made is when the plan was made.
	made time.Time
	// Until is when the last of them is to have ended.
	Until time.Time
	// Reason is what the workload's pods say meanwhile.
	Reason string

	// ending are pods that were ending already, such as victims of a leader before this one. They count in their queues no more.
	ending     []Victim
	id         string
	queue      string // of the workload, empty outside all queues
	first      string // the pod that stands for it in messages
	placements []gang.Placement
	pods       map[string]*corev1.Pod // by key
	awaits     map[string]bool        // claims whose devices are to come free
	over       time.Time              // when nothing is kept any more
	ready      bool
	seats      []*seat
}

// Victim is a pod that ends for others.
type Victim struct {
	Pod   *corev1.Pod
	Grace time.Duration
	// Rule says why it may end, and Note tells it to its owner in one line.
	Rule reclaim.Rule
	Note string
	// Queue is that of the pod, empty outside all queues.
	Queue string
	// Forced tells that disruption budgets were waited for long enough.
	Forced bool
	// Node is where a place is kept for one that moves.
	Node string
	// Orders have a victim leave its GPUs while its pod stays; it has its grace to do so. Without any it ends.
	Orders []Order
	// ends is the grace of one that ends, and work its workload.
	ends time.Duration
	work string
}

// demander is pods for which others may end.
type demander struct {
	gang    gang.Gang
	members []gang.Member
	units   map[string]*Unit // those that wait, by key
}

// one is a pod alone as a demander.
func one(u *Unit) demander {
	key := keyOf(u.Pod)
	return demander{
		gang:    gang.Gang{Namespace: u.Pod.Namespace, Name: u.Pod.Name, Size: 1, Minimum: 1, ShareGPUs: true},
		members: []gang.Member{{Key: key, Pod: *u.Demand.Pod()}}, units: map[string]*Unit{key: u},
	}
}

// TakeBack finds out whose pods end so that a unit gets a place for which there is no room, and keeps their devices for it. The caller
// ends the victims. The error says why nobody does, or is errLater.
func (e *Engine) TakeBack(u *Unit, filters Filters, now time.Time) (*Taking, error) {
	if len(u.Demand.Claims()) == 0 || u.Demand.Node() != "" {
		return nil, errNever
	}
	return e.takeBack(one(u), filters, now)
}

// TakeBackGang is [Engine.TakeBack] for all members of a pod's gang that must be placed together.
func (e *Engine) TakeBackGang(pod *corev1.Pod, filters Filters, now time.Time) (*Taking, error) {
	_, state := e.Gangs.state(pod)
	if state.Reason != "" {
		return nil, errNever
	}
	waiting, bound := e.Gangs.pair(&state)
	units, members, err := e.members(waiting, bound, nil)
	if err != nil {
		return nil, err
	}
	g := state.Gang
	need := min(max(1, g.Minimum-len(bound)), len(waiting))
	d := demander{gang: g, units: map[string]*Unit{}}
	d.gang.Size = min(cmp.Or(g.Size, len(members)), need+len(bound))
	for i := range members {
		if m := &members[i]; m.Placed != nil {
			d.members = append(d.members, *m)
		} else if len(d.units) < need {
			d.units[m.Key] = units[m.Key]
			d.members = append(d.members, *m)
		}
	}
	return e.takeBack(d, filters, now)
}

func (e *Engine) takeBack(d demander, filters Filters, now time.Time) (*Taking, error) {
	t := &e.queues.takings
	search := newSearch(e, d, filters, now)
	if !e.queues.set.MayTake(&search.demander) && (!e.Moves || !e.queues.set.MayMove(&search.demander)) {
		t.forget(search.demander.ID)
		return nil, errNever
	}
	if last, ok := t.wants[search.demander.ID]; ok && now.Before(last.at) {
		return nil, last.why
	}
	if now.Before(t.next) {
		last := t.wants[search.demander.ID]
		t.wants[search.demander.ID] = want{t.next, cmp.Or(last.why, errLater)}
		return nil, cmp.Or(last.why, errLater)
	}
	begun := time.Now()
	plan, err := search.run()
	t.next = now.Add(searchPart * time.Since(begun))
	if err != nil {
		t.wants[search.demander.ID] = want{now.Add(searchAgain), err}
		if _, ok := t.since[search.demander.ID]; !ok {
			t.since[search.demander.ID] = now
		}
		return nil, err
	}
	made, err := e.take(search, plan)
	if err != nil {
		t.wants[search.demander.ID] = want{now.Add(searchAgain), err}
		return nil, err
	}
	delete(t.wants, search.demander.ID)
	return made, nil
}

// take keeps what a plan says.
func (e *Engine) take(s *search, plan *reclaim.Plan) (*Taking, error) {
	made := &Taking{id: s.demander.ID, placements: plan.Placements, pods: map[string]*corev1.Pod{}, awaits: map[string]bool{}, made: s.now, Until: s.now}
	var places []alloc.Assignment
	for i := range plan.Placements {
		p := &plan.Placements[i]
		made.pods[p.Member.Key] = s.units[p.Member.Key].Pod
		places = append(places, p.Assignment)
	}
	var ends, from []types.UID
	made.queue, made.first = e.queues.set.QueueOf(s.first().UID), keyOf(s.first())
	for _, v := range plan.Victims {
		for _, j := range v.Members {
			pod := s.pods[v.Candidate][j]
			made.Victims = append(made.Victims, s.victim(plan, &v, j))
			ends = append(ends, pod.UID)
			if v.Rule == reclaim.RuleEntitlement {
				from = append(from, pod.UID)
			}
		}
	}
	ends = append(ends, made.awaitEnding(s, plan)...)
	if refusal := e.queues.set.Agree(made.id, e.charges(places), ends, from); refusal != nil {
		return nil, quotaError(refusal)
	}
	for i := range made.ending {
		e.queues.set.Sleep(made.ending[i].Pod.UID, e.queues.set.Leaves(made.ending[i].Pod.UID))
	}
	e.putOut(s, plan, made)
	for i := range made.Victims {
		v := &made.Victims[i]
		v.Note = note(made.first, made.queue, v)
		made.await(e, string(v.Pod.UID), s.now.Add(v.Grace))
	}
	made.over = made.Until.Add(takeMargin)
	made.Reason = made.reason()
	e.queues.takings.all[made.id] = made
	e.keep(made)
	e.seat(s, plan, made)
	return made, nil
}

// awaitEnding has a taking wait for those who are ending already, or are being suspended, and returns their pods.
func (t *Taking) awaitEnding(s *search, plan *reclaim.Plan) (ends []types.UID) {
	set := s.engine.queues.set
	for _, at := range plan.Awaits {
		for j := range s.candidates[at].Members {
			end := s.now
			if s.pods[at] != nil {
				pod := s.pods[at][j]
				t.ending = append(t.ending, Victim{Pod: pod, Queue: set.QueueOf(pod.UID)})
				ends = append(ends, pod.UID)
				if set.Leaves(pod.UID) {
					end = s.now.Add(answerLimit)
				} else if pod.DeletionTimestamp != nil {
					end = pod.DeletionTimestamp.Time
				}
			}
			t.await(s.engine, s.candidates[at].Members[j].Key, end)
		}
	}
	return ends
}

func (t *Taking) await(e *Engine, member string, end time.Time) {
	for _, key := range e.queues.set.AwaitedClaims(member) {
		t.awaits[key] = true
	}
	if end.After(t.Until) {
		t.Until = end
	}
}

// Taking is what is taken back for a pod's workload, nil where nothing is; ready tells that the devices are free.
func (e *Engine) Taking(pod *corev1.Pod) (t *Taking, ready bool) {
	if len(e.queues.takings.seats) > 0 && e.meet(pod) != nil {
		e.offer(pod)
	}
	t = e.queues.takings.all[e.queues.set.ID(pod.UID)]
	return t, t != nil && t.ready
}

// keep has the inventory keep devices for a taking. It is said again in every cycle, because a node that changes forgets it.
func (e *Engine) keep(t *Taking) {
	inv := e.ledger.Inventory()
	for i := range t.placements {
		inv.SetAside(t.placements[i].Assignment)
	}
}

// drop ends a taking. Victims that are still there count in their queues again.
func (e *Engine) drop(t *Taking) {
	if e.queues.takings.all[t.id] != t {
		return
	}
	delete(e.queues.takings.all, t.id)
	delete(e.queues.takings.wants, t.id)
	e.queues.set.Drop(t.id)
	for _, v := range append(t.Victims[:len(t.Victims):len(t.Victims)], t.ending...) {
		e.queues.set.Return(v.Pod.UID)
	}
	inv := e.ledger.Inventory()
	for i := range t.placements {
		inv.PutBack(t.placements[i].Assignment)
	}
	e.keepAll()
	e.freed.Add(1)
	if !t.ready {
		e.abandon(t)
	}
}

// use ends a taking whose devices have come free for its workload.
func (e *Engine) use(t *Taking) {
	e.drop(t)
	e.queues.takings.forget(t.id)
}

// GiveUp ends a taking of which a victim does not end, because an API server has refused it. Other plans leave that victim out for a
// minute. The workload has waited since the plan was made. Anybody may call it.
func (e *Engine) GiveUp(t *Taking, victim *corev1.Pod) {
	e.tell(func() {
		e.queues.takings.stay[victim.UID] = e.clock().Add(stayLimit)
		since := e.queues.takings.since
		if _, ok := since[t.id]; !ok && e.queues.takings.all[t.id] == t {
			since[t.id] = t.made
		}
		e.drop(t)
	})
}

// follow looks which takings are ready, and ends those that are over.
func (e *Engine) follow() {
	e.followSeats()
	maps.DeleteFunc(e.queues.takings.stay, func(_ types.UID, until time.Time) bool { return e.clock().After(until) })
	for _, id := range slices.Sorted(maps.Keys(e.queues.takings.all)) {
		t := e.queues.takings.all[id]
		e.came(t.awaits)
		if len(t.awaits) == 0 && !t.ready {
			t.ready, t.over = true, e.clock().Add(takeLimit)
			for _, pod := range t.pods {
				delete(e.queues.tried, pod.UID)
			}
		}
		if !e.answers(t) || e.clock().After(t.over) || !e.stands(t) {
			e.drop(t)
			continue
		}
		e.keep(t)
	}
}

// stands reports whether the pods and the nodes of a taking are still there.
func (e *Engine) stands(t *Taking) bool {
	var places []alloc.Assignment
	for i := range t.placements {
		p := &t.placements[i]
		if e.queues.set.ID(t.pods[p.Member.Key].UID) != t.id {
			return false
		}
		places = append(places, p.Assignment)
	}
	return e.there(places)
}

// ready is a pod whose devices have come free, nil where there is none.
func (e *Engine) ready() *corev1.Pod {
	for _, id := range slices.Sorted(maps.Keys(e.queues.takings.all)) {
		if t := e.queues.takings.all[id]; t.ready {
			if pod := e.queues.set.Pod(id); pod != nil && !e.queues.tried[pod.UID] {
				return pod
			}
		}
	}
	return nil
}
