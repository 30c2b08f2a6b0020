// Package workload turns pods and claims into workloads of queues: which pods are one workload, in which queue it is, what it
// asks and what it has. It is pure.
package workload

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/queue"
)

// Gangs tells which pods belong together.
type Gangs interface {
	// Gang is the name of a pod's gang and how many of its members must be there together; false for a pod in none.
	Gang(pod *corev1.Pod) (id string, minimum int, ok bool)
}

// Set is all workloads of a cluster: pods that ask for GPUs or have some, each by itself or with its gang, and claims that have
// GPUs without a pod. Only one goroutine at a time may call its methods.
type Set struct {
	// Book has the workloads while there are queues. [Set.Settle] brings it up to date.
	Book *queue.Book
	// Turns are those that are to be tried.
	Turns *queue.Turns

	gangs  Gangs
	on     bool
	pods   map[types.UID]*pod
	works  map[string]*work
	claims map[string]*claim
	// away are the claims that are ordered out of their GPUs.
	away map[string]bool
	// orphans are claims by their users, as long as these are not there.
	orphans map[types.UID]map[string]bool
	dirty   map[string]bool
	// epoch counts changes of queues and of what there is.
	epoch    int
	capacity []queue.Charge
}

// pod is what counts of one.
type pod struct {
	*corev1.Pod
	work   string
	asks   []queue.Charge
	claims map[string]bool
	// released tells that it ends for others, and does not count any more. One that is suspended for others sleeps instead: it
	// asks for what it has.
	released, sleeps bool
	// cpu and memory are what it asks of its node, once counted is set.
	cpu     int64
	memory  uint64
	counted bool
	// asked tells that asks is of this version of the pod.
	asked bool
}

// work is a workload.
type work struct {
	id      string
	gang    string // the name of its gang, empty for a pod alone and for a claim
	members map[types.UID]*pod
	// namespace is that of a claim without a pod, and claim its key.
	namespace, claim string
	// kept is what is kept for it until others have ended.
	kept []queue.Charge
	took took
	// What follows is as of the last [Set.Settle]. spoken is the oldest member, nil for a claim.
	spoken   *corev1.Pod
	quota    v1alpha1.Quota
	priority int32
	node     queue.Node
	holds    bool
}

// claim is what a claim has.
type claim struct {
	Claim
	work string
}

// Claim is what a claim has, and for whom it is reserved.
type Claim struct {
	// Charges are empty for a claim that has nothing.
	Charges []queue.Charge
	// Pods are the pods for which it is reserved, and Others tells that others than pods use it. A claim without both is about to be
	// cleared.
	Pods   []types.UID
	Others bool
	// Flies tells that it is not written yet.
	Flies bool
	// Away tells that it is ordered out of its GPUs: it uses nothing, and asks for its charges. Out tells that nothing of it is there
	// any more. Back is when it came back last.
	Away, Out bool
	Back      time.Time
}

// New makes a set without queues.
func New(gangs Gangs) *Set {
	book := queue.NewBook()
	return &Set{
		Book: book, Turns: queue.NewTurns(book), gangs: gangs, pods: map[types.UID]*pod{}, works: map[string]*work{},
		claims: map[string]*claim{}, away: map[string]bool{}, orphans: map[types.UID]map[string]bool{}, dirty: map[string]bool{},
	}
}

// On reports whether there are queues. Without any, the book is empty.
func (s *Set) On() bool { return s.on }

// SetQueues replaces the queues, and reports whether it has turned them on: then all pods that wait are to be asked for.
func (s *Set) SetQueues(specs []queue.Spec) (began bool) {
	was := s.on
	s.on = len(specs) > 0
	s.epoch++
	s.Book.SetQueues(specs)
	for id := range s.works {
		s.dirty[id] = true
		if !s.on {
			s.Book.End(id)
			s.Turns.Remove(id)
		}
	}
	return s.on && !was
}

// SetCapacity says what GPUs there are, and reports whether that is something else than before.
func (s *Set) SetCapacity(capacity []queue.Charge) bool {
	if equalCharges(s.capacity, capacity) {
		return false
	}
	s.capacity = capacity
	s.Book.SetCapacity(capacity)
	s.epoch++
	return true
}

// SetPod takes in a pod as it is.
func (s *Set) SetPod(object *corev1.Pod) {
	p := s.pods[object.UID]
	if p == nil {
		p = &pod{claims: map[string]bool{}}
		s.pods[object.UID] = p
	}
	p.asked = p.asked && p.ResourceVersion == object.ResourceVersion
	p.Pod, p.counted = object, false
	id, gang := keyOf(object), ""
	if name, _, ok := s.gangs.Gang(object); ok {
		id, gang = "gang "+name, name
	}
	if p.work != id {
		s.leave(p)
		w := s.works[id]
		if w == nil {
			w = &work{id: id, gang: gang, members: map[types.UID]*pod{}}
			s.works[id] = w
		}
		w.members[object.UID] = p
		p.work = id
		for key := range p.claims {
			s.claims[key].work = id
		}
		for key := range s.orphans[object.UID] { // those that came before their pod
			s.attribute(key, s.claims[key])
		}
	}
	s.dirty[id] = true
}

// RemovePod takes in that a pod has gone. Claims that it had count by themselves until they are cleared.
func (s *Set) RemovePod(uid types.UID) {
	p := s.pods[uid]
	if p == nil {
		return
	}
	s.leave(p)
	delete(s.pods, uid)
	for key := range p.claims {
		s.attribute(key, s.claims[key])
	}
}

// leave takes a pod out of its workload.
func (s *Set) leave(p *pod) {
	w := s.works[p.work]
	if w == nil {
		return
	}
	delete(w.members, p.UID)
	s.dirty[w.id] = true
}

// Ask says what a pod asks that waits.
func (s *Set) Ask(uid types.UID, asks []queue.Charge) {
	p := s.pods[uid]
	if p == nil {
		return
	}
	p.asked = true
	if !equalCharges(p.asks, asks) {
		p.asks = asks
		s.dirty[p.work] = true
	}
}

// Asked reports whether it is known what a pod asks, as it is now.
func (s *Set) Asked(uid types.UID) bool {
	p := s.pods[uid]
	return p != nil && p.asked
}

// Settle brings the book up to date. Every method that reads the book calls it.
func (s *Set) Settle() {
	for _, id := range slices.Sorted(maps.Keys(s.dirty)) {
		w := s.works[id]
		if w == nil {
			continue
		}
		if len(w.members) == 0 && w.claim == "" {
			delete(s.works, id)
			s.Book.End(id)
			s.Turns.Remove(id)
			continue
		}
		s.enter(w)
	}
	clear(s.dirty)
}

// enter tells the book of a workload.
func (s *Set) enter(w *work) {
	held := s.held(w)
	w.quota, w.spoken, w.priority, w.node, w.holds = v1alpha1.QuotaBorrowing, nil, 0, queue.Outside, len(held) > 0
	if first := w.first(); first != nil {
		w.spoken, w.priority = first.Pod, priorityOf(first.Pod)
		w.quota = w.common()
	}
	if !s.on {
		return
	}
	name := s.queueOf(w)
	if n, ok := s.Book.Tree().Find(name); ok {
		w.node = n
	}
	if len(held) == 0 {
		held = nil
	}
	entry := queue.Workload{ID: w.id, Queue: name, Quota: w.quota, Priority: w.priority, Asks: s.asks(w, held)}
	if len(held)+len(entry.Asks) == 0 { // it wants nothing that queues count
		s.Book.End(w.id)
		s.Turns.Remove(w.id)
		return
	}
	if w.spoken != nil {
		entry.Since = w.spoken.CreationTimestamp.Time
	}
	had := s.Turns.Has(w.id)
	s.Book.Arrive(entry)
	s.Book.Hold(w.id, held)
	if had {
		s.Turns.Add(w.id)
	}
}

func (p *pod) ends() bool { return p.DeletionTimestamp != nil || p.released && !p.sleeps }

// sorted are the members, the oldest first.
func (w *work) sorted() []*pod {
	all := slices.Collect(maps.Values(w.members))
	slices.SortFunc(all, func(a, b *pod) int { return byAge(a.Pod, b.Pod) })
	return all
}

// byAge orders pods, the oldest first.
func byAge(a, b *corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name), strings.Compare(string(a.UID), string(b.UID)))
}

// first is the oldest member, which speaks for its gang; nil for a claim.
func (w *work) first() (first *pod) {
	for _, p := range w.members {
		if first == nil || byAge(p.Pod, first.Pod) < 0 {
			first = p
		}
	}
	return first
}

// ID is the name of a pod's workload, empty for a pod that is not known.
func (s *Set) ID(uid types.UID) string {
	if p := s.pods[uid]; p != nil {
		return p.work
	}
	return ""
}

// Pod is a member of a workload that waits for a node, the oldest one; nil where none does.
func (s *Set) Pod(id string) *corev1.Pod {
	w := s.works[id]
	if w == nil {
		return nil
	}
	for _, p := range w.sorted() {
		if p.Spec.NodeName == "" && !p.ends() {
			return p.Pod
		}
	}
	return nil
}

// Waiting are all pods that wait for a node, the oldest first.
func (s *Set) Waiting() (all []*corev1.Pod) {
	for _, p := range s.pods {
		if p.Spec.NodeName == "" && len(p.claims) == 0 && !p.ends() {
			all = append(all, p.Pod)
		}
	}
	slices.SortFunc(all, byAge)
	return all
}

// Check says why a workload may not have more than it has; nil lets it.
func (s *Set) Check(id string, more []queue.Charge) *queue.Refusal {
	w := s.works[id]
	if !s.on || w == nil {
		return nil
	}
	s.Settle()
	return s.Book.Check(id, merged(append(s.held(w), more...)))
}

// QueueOf is the name of the queue in which a pod counts, empty for one outside all queues.
func (s *Set) QueueOf(uid types.UID) string {
	if p := s.pods[uid]; p != nil && s.on {
		return s.queueOf(s.works[p.work])
	}
	return ""
}

func keyOf(object *corev1.Pod) string { return object.Namespace + "/" + object.Name }

func priorityOf(object *corev1.Pod) int32 {
	if object.Spec.Priority == nil {
		return 0
	}
	return *object.Spec.Priority
}

// began is when a pod got its node, as far as that is known.
func began(object *corev1.Pod) time.Time {
	for i := range object.Status.Conditions {
		if c := &object.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return object.CreationTimestamp.Time
}
