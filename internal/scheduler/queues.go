package scheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
	"github.com/divvy-gpu/divvy/internal/scheduler/ledger"
	"github.com/divvy-gpu/divvy/internal/scheduler/workload"
)

// ErrQuota marks pods that their queue does not let start now. The text is one line for users.
var ErrQuota = errors.New("no quota")

// queues is what the engine knows of queues and of workloads.
type queues struct {
	set   *workload.Set
	specs map[string]queue.Spec
	known map[string]v1alpha1.Queue
	// specsStale, capacityStale and touched are what [Engine.settle] is to bring up to date.
	specsStale, capacityStale bool
	touched                   map[string]workload.Claim // without charges
	// tried are pods that had their turn, until they have another.
	tried map[types.UID]bool
	// fault is why the queues are not known, empty where they are.
	fault   string
	follows bool
	settled atomic.Bool
	takings takings
	// suspensions are those of victims that do not end.
	suspensions suspensions
}

func (q *queues) init(g *Gangs) {
	q.set = workload.New(gangsOf{g})
	q.specs, q.known = map[string]queue.Spec{}, map[string]v1alpha1.Queue{}
	q.touched, q.tried = map[string]workload.Claim{}, map[types.UID]bool{}
	q.takings.init()
	q.suspensions.init()
}

// gangsOf tells workloads of gangs.
type gangsOf struct{ gangs *Gangs }

// Gang implements workload.Gangs.
func (g gangsOf) Gang(pod *corev1.Pod) (id string, minimum int, ok bool) {
	g.gangs.mutex.Lock()
	defer g.gangs.mutex.Unlock()
	id, in, err := g.gangs.members.Of(keyOf(pod))
	if !in || err != nil {
		return "", 0, false
	}
	s := g.gangs.members.State(id)
	return id, max(1, s.Gang.Minimum), true
}

// QueuesResource is how the API serves queues.
var QueuesResource = schema.FromAPIVersionAndKind(v1alpha1.APIVersion, v1alpha1.KindQueue).GroupVersion().WithResource(v1alpha1.QueueResources)

// FollowQueues has the engine hear of the queues of the cluster until the context ends, as long as the API serves them. changed is
// called after each change. It returns at once, and is called once, before the first cycle.
func (e *Engine) FollowQueues(ctx context.Context, served Served, client dynamic.Interface, changed func()) {
	e.queues.follows = true
	o := objects{resource: QueuesResource, served: served, client: client}
	after := func(event func()) {
		e.tell(event)
		e.freed.Add(1)
		changed()
	}
	o.told = func(before, object *unstructured.Unstructured) {
		after(func() { e.setQueue(before, object) })
	}
	o.state = func(state objectsState, why string) {
		if state != objectsUnread {
			why = ""
		}
		after(func() { e.queues.fault = why })
		e.queues.settled.Store(true)
	}
	o.forget = func() {
		after(func() {
			clear(e.queues.specs)
			clear(e.queues.known)
			e.queues.specsStale = true
		})
	}
	go o.run(ctx)
}

// setQueue takes in a queue as it is. What only its status says changes nothing.
func (e *Engine) setQueue(before, after *unstructured.Unstructured) {
	q := &e.queues
	if after == nil {
		delete(q.specs, before.GetName())
		delete(q.known, before.GetName())
		q.specsStale = true
		return
	}
	name := after.GetName()
	was, there := q.known[name]
	text, err := json.Marshal(after.Object)
	var read v1alpha1.Queue
	if err == nil {
		read, err = v1alpha1.DecodeQueue(text)
	}
	spec := queue.Spec{Name: name, QueueSpec: read.Spec}
	if err != nil {
		spec.Fault = oneLine(err)
		read.Metadata.Name, read.Metadata.Generation = name, after.GetGeneration()
	}
	q.known[name] = read
	if there && was.Metadata.UID == read.Metadata.UID && was.Metadata.Generation == read.Metadata.Generation && read.Metadata.Generation != 0 {
		return
	}
	q.specs[name] = spec
	q.specsStale = true
}

// settle brings the workloads up to date with everything that was told.
func (e *Engine) settle() {
	q := &e.queues
	if q.specsStale {
		q.specsStale = false
		specs := make([]queue.Spec, 0, len(q.specs))
		for _, s := range q.specs {
			specs = append(specs, s)
		}
		if q.set.SetQueues(specs) {
			q.capacityStale = true
			e.askAll()
		}
	}
	if q.capacityStale && q.set.On() {
		q.capacityStale = false
		if q.set.SetCapacity(workload.Capacity(e.ledger.Inventory(), e.cordoned)) {
			e.askAll()
		}
	}
	for key := range q.touched {
		e.settleClaim(key)
	}
	e.follow()
	e.tidy()
	q.set.Settle()
	e.rouse()
}

// askAll finds out anew what all pods ask that wait.
func (e *Engine) askAll() {
	for _, pod := range e.queues.set.Waiting() {
		if len(pod.Spec.SchedulingGates) == 0 {
			e.ask(pod)
		}
	}
}

// ask finds out what a pod asks. One that cannot be read yet asks for nothing.
func (e *Engine) ask(pod *corev1.Pod) {
	if u, err := e.Read(pod); err == nil || Elsewhere(err) {
		e.queues.set.Ask(pod.UID, workload.Asked(e.ledger.Inventory(), u.Demand.Pod()))
	}
}

// setPod takes in a pod for its queue; nil is one that has gone.
func (e *Engine) setPod(before, after *corev1.Pod) {
	q := &e.queues
	switch {
	case after == nil:
		q.set.RemovePod(before.UID)
		delete(q.tried, before.UID)
	case len(after.Spec.ResourceClaims) > 0 || after.Status.ExtendedResourceClaimStatus != nil || e.Gangs.In(after):
		q.set.SetPod(after)
	}
}

// Enqueued notes that a pod may be tried from now on. Anybody may call it.
func (e *Engine) Enqueued(pod *corev1.Pod) {
	e.tell(func() { e.enqueued(pod, false) })
}

// Again notes that a pod is to be tried again. Anybody may call it.
func (e *Engine) Again(pods ...*corev1.Pod) {
	e.tell(func() {
		for _, pod := range pods {
			e.enqueued(pod, true)
		}
	})
}

func (e *Engine) enqueued(pod *corev1.Pod, again bool) {
	q := &e.queues
	if !q.set.On() || q.tried[pod.UID] && !again {
		return
	}
	there := e.meet(pod)
	if there == nil || there.Spec.NodeName != "" || there.DeletionTimestamp != nil {
		return
	}
	if !q.set.Asked(there.UID) {
		e.ask(there)
	}
	q.set.Settle()
	q.set.Turns.Add(q.set.ID(there.UID))
}

// line gives those that wait for room a turn in the order of queues.
func (e *Engine) line() {
	if !e.queues.set.On() {
		return
	}
	for _, pod := range e.Waiting.ordered() {
		e.enqueued(pod, true)
	}
}

// meet takes in a pod of which no event has come yet, and returns it as it is now; nil is one that has gone. Kubernetes' queue may
// hear of a pod before the engine does.
func (e *Engine) meet(pod *corev1.Pod) *corev1.Pod {
	there, err := e.pods.Pods(pod.Namespace).Get(pod.Name)
	if err != nil || there.UID != pod.UID {
		return nil
	}
	e.setPod(nil, there)
	return there
}

// First is the pod whose turn it is by the order of queues, nil where no pod has one. The pod of an argument, which may be nil, has
// a turn as well. Where there are no queues it is the argument, or a member of a gang that has lost one.
func (e *Engine) First(and *corev1.Pod) *corev1.Pod {
	q := &e.queues
	if !q.set.On() {
		return e.Gangs.first(and, e.freed.Load())
	}
	if and != nil && !q.set.Turns.Has(q.set.ID(and.UID)) {
		e.enqueued(and, true)
	}
	if pod := e.ready(); pod != nil {
		return pod
	}
	for {
		id, ok := q.set.Turns.First()
		if !ok {
			return and
		}
		e.resume(id)
		if and != nil && q.set.ID(and.UID) == id {
			return and
		}
		if pod := q.set.Pod(id); pod != nil {
			return pod
		}
		q.set.Turns.Remove(id)
	}
}

// Popped notes that a pod has its turn.
func (e *Engine) Popped(pod *corev1.Pod) {
	q := &e.queues
	if q.set.On() {
		q.tried[pod.UID] = true
		q.set.Turns.Remove(q.set.ID(pod.UID))
	}
}

// Queues reports whether there are queues.
func (e *Engine) Queues() bool { return e.queues.set.On() }

// Quota says why a pod's queue does not let it start, wherever it goes: the error is [ErrWait], or [ErrQuota] with a
// [*queue.Refusal]. units are all that are to start together.
func (e *Engine) Quota(units ...*Unit) error {
	q := &e.queues
	if q.fault != "" {
		return fmt.Errorf("%w: kind %s %s", ErrWait, v1alpha1.KindQueue, q.fault)
	}
	if !q.set.On() || len(units) == 0 {
		return nil
	}
	if t, _ := e.Taking(units[0].Pod); t != nil {
		return nil // it was checked with the plan, and counts already
	}
	for _, u := range units {
		if err := cmp.Or(q.set.May(u.Pod), e.mayShare(u)); err != nil {
			return fmt.Errorf("%w: %w", ErrWait, err)
		}
	}
	pods := make([]*alloc.Pod, len(units))
	for i, u := range units {
		pods[i] = u.Demand.Pod()
	}
	var refusal *queue.Refusal
	for _, way := range workload.Ways(e.ledger.Inventory(), pods...) {
		if refusal = q.set.Check(q.set.ID(units[0].Pod.UID), way); refusal == nil {
			return nil
		}
	}
	if refusal == nil {
		return nil // it asks for nothing that is there
	}
	return quotaError(refusal)
}

// mayShare says why a unit may not use claims that others use already.
func (e *Engine) mayShare(u *Unit) error {
	for _, key := range slices.Sorted(maps.Keys(u.Existing)) {
		if err := e.queues.set.MayShare(u.Pod, key); err != nil {
			return err
		}
	}
	return nil
}

func quotaError(refusal *queue.Refusal) error { return fmt.Errorf("%w: %w", ErrQuota, refusal) }

// allows says why a unit's queue does not let it have a place; nil lets it.
func (e *Engine) allows(u *Unit, place *alloc.Assignment) *queue.Refusal {
	q := &e.queues
	if !q.set.On() {
		return nil
	}
	return q.set.Check(q.set.ID(u.Pod.UID), workload.Held(e.ledger.Inventory(), *place))
}

// allowsFound says why a unit's queue does not let it have what Kubernetes' own allocator found, or why that is kept for another.
func (e *Engine) allowsFound(u *Unit, found []*resourcev1.ResourceClaim) error {
	var places []alloc.Assignment
	for _, claim := range found {
		one := demand.Claim{UID: claim.UID, Namespace: claim.Namespace, Name: claim.Name, Spec: &claim.Spec, Allocation: claim.Status.Allocation}
		if given, ok := demand.Adopt(&one, e.ledger); ok {
			places = append(places, given)
		}
	}
	for i := range places {
		if e.kept(&places[i]) {
			return fmt.Errorf("%w: a GPU of node %s is kept for pods that take it back", ledger.ErrTaken, places[i].Name)
		}
	}
	q := &e.queues
	if !q.set.On() || len(places) == 0 {
		return nil
	}
	q.set.SetPod(u.Pod)
	if err := cmp.Or(q.set.May(u.Pod), e.mayShare(u)); err != nil {
		return fmt.Errorf("%w: %w", ledger.ErrTaken, err)
	}
	if refusal := q.set.Check(q.set.ID(u.Pod.UID), e.charges(places)); refusal != nil {
		return fmt.Errorf("%w: %w", ledger.ErrTaken, quotaError(refusal))
	}
	return nil
}

// kept reports whether a GPU of a place is kept for somebody.
func (e *Engine) kept(place *alloc.Assignment) bool {
	var all []alloc.Assignment
	for _, t := range e.queues.takings.all {
		for i := range t.placements {
			all = append(all, t.placements[i].Assignment)
		}
	}
	for _, s := range e.queues.takings.seats {
		all = append(all, s.places()...)
	}
	for i := range all {
		for k := range place.Shares {
			if all[i].Name == place.Name && slices.ContainsFunc(all[i].Shares, func(s alloc.Share) bool { return s.UUID == place.Shares[k].UUID }) {
				return true
			}
		}
	}
	return false
}
