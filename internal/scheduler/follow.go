package scheduler

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/scheduler/ledger"
)

// Follow has the engine hear of nodes, slices, classes and claims. It is called once, before the informers start. gone is
// called for each pod that has ended or is no more, woken after events that may have made room, and again for a waiting pod of which labels
// or annotations have changed.
func (e *Engine) Follow(factory informers.SharedInformerFactory, gone func(*corev1.Pod), woken func(), again func(*corev1.Pod)) error {
	room := func() {
		e.freed.Add(1)
		woken()
		e.tell(e.line)
	}
	classes := factory.Resource().V1().DeviceClasses().Informer()
	e.pods = factory.Core().V1().Pods().Lister()
	e.Gangs.current = e.pods.Pods
	e.disruptions = factory.Policy().V1().PodDisruptionBudgets().Lister()
	return e.handle(
		follower{factory.Core().V1().Nodes().Informer(), handler(func(before, after *corev1.Node) { e.onNode(before, after, room) })},
		follower{factory.Resource().V1().ResourceSlices().Informer(), handler(func(before, after *resourcev1.ResourceSlice) { e.onSlice(before, after, room) })},
		follower{classes, handler(func(_, _ *resourcev1.DeviceClass) {
			e.tell(func() { e.setClasses(classes.GetStore().List()) })
			room()
		})},
		follower{factory.Resource().V1().ResourceClaims().Informer(), handler(func(before, after *resourcev1.ResourceClaim) { e.onClaim(before, after, room) })},
		follower{factory.Core().V1().Pods().Informer(), handler(func(before, after *corev1.Pod) { e.onPod(before, after, gone, again) })},
	)
}

func (e *Engine) onNode(before, after *corev1.Node, room func()) {
	e.tell(func() { e.setNode(before, after) })
	if after == nil {
		return
	}
	if before == nil || !before.Status.Allocatable.Cpu().Equal(*after.Status.Allocatable.Cpu()) {
		room()
	}
}

func (e *Engine) onSlice(before, after *resourcev1.ResourceSlice, room func()) {
	if driverOf(before) != v1alpha1.Driver && driverOf(after) != v1alpha1.Driver {
		return
	}
	e.tell(func() { e.setSlice(before, after) })
	room()
}

func (e *Engine) onClaim(before, after *resourcev1.ResourceClaim, room func()) {
	defer e.heard.set(before, after) // after the event was told
	if !has(before) && !has(after) && !ordered(before) && !ordered(after) {
		return
	}
	e.tell(func() { e.setClaim(before, after) })
	if has(after) && ordered(after) && ledger.StandingOf(before) != ledger.StandingOf(after) {
		room() // what it had may be free
	}
	if has(after) {
		e.unwritten.set(after.Namespace+"/"+after.Name, false)
	} else {
		room()
	}
}

func (e *Engine) onPod(before, after *corev1.Pod, gone, again func(*corev1.Pod)) {
	e.tell(func() { e.setPod(before, after) })
	if after == nil {
		e.described.forget(before.UID)
		e.Waiting.Remove(before.UID)
		e.Gangs.Remove(before)
		gone(before)
		return
	}
	e.Gangs.Set(after)
	if edited(before, after) { // Kubernetes' queue does not try a pod again for an annotation
		e.Gangs.forgetRefusal(e.Gangs.ID(after))
		e.edited.Store(true)
		again(after)
	}
	if after.DeletionTimestamp != nil { // it is not tried any more, however long its finalizers keep it
		e.Waiting.Remove(after.UID)
	}
	if after.Spec.NodeName != "" && (before == nil || before.Spec.NodeName == "") {
		e.described.forget(after.UID)
		e.Waiting.Remove(after.UID)
	}
}

// Edited reports whether pods that wait were edited since it was asked last. Others that wait are to be tried again then: they may be of
// one gang. They are asked for seldom, because whoever has pods may edit them as often as he likes. Anybody may call it.
func (e *Engine) Edited() bool {
	if !e.edited.Swap(false) {
		return false
	}
	e.freed.Add(1)
	e.tell(e.line)
	return true
}

// edited reports whether a pod that waits for a node says something else than before beside its specification.
func edited(before, after *corev1.Pod) bool {
	return before != nil && after.Spec.NodeName == "" && (!maps.Equal(before.Annotations, after.Annotations) || !maps.Equal(before.Labels, after.Labels))
}

// follower is an informer and what is to hear of its objects.
type follower struct {
	informer cache.SharedIndexInformer
	handler  cache.ResourceEventHandler
}

func (e *Engine) handle(all ...follower) error {
	for _, f := range all {
		registration, err := f.informer.AddEventHandler(f.handler)
		if err != nil {
			return fmt.Errorf("follow the cluster: %w", err)
		}
		e.handlers = append(e.handlers, registration)
	}
	return nil
}

// handler calls a function for each change of an object, nil for what was not or is not there.
func handler[T any](change func(before, after *T)) cache.ResourceEventHandler {
	as := func(object any) *T {
		if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = last.Obj
		}
		typed, _ := object.(*T)
		return typed
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { change(nil, as(object)) },
		UpdateFunc: func(before, after any) { change(as(before), as(after)) },
		DeleteFunc: func(object any) {
			if before := as(object); before != nil {
				change(before, nil)
			}
		},
	}
}

func driverOf(slice *resourcev1.ResourceSlice) string {
	if slice == nil {
		return ""
	}
	return slice.Spec.Driver
}

// has reports whether a claim has devices of Divvy's.
func has(claim *resourcev1.ResourceClaim) bool {
	return claim != nil && claim.Status.Allocation != nil && slices.ContainsFunc(claim.Status.Allocation.Devices.Results,
		func(r resourcev1.DeviceRequestAllocationResult) bool { return r.Driver == v1alpha1.Driver })
}

// ordered reports whether a claim is ordered out of its GPUs.
func ordered(claim *resourcev1.ResourceClaim) bool {
	return claim != nil && claim.Annotations[v1alpha1.SuspendAnnotation] != ""
}

func (e *Engine) setNode(before, after *corev1.Node) {
	e.queues.capacityStale = true
	if after == nil {
		e.ledger.SetNode(before.Name, nil)
		e.bare.setNode(before.Name, false)
		delete(e.uses, before.Name)
		delete(e.labels, before.Name)
		delete(e.cordoned, before.Name)
		return
	}
	if before == nil {
		delete(e.uses, after.Name)
		e.added++
	}
	e.ledger.SetNode(after.Name, after)
	e.labels[after.Name] = after.Labels
	e.cordoned[after.Name] = after.Spec.Unschedulable
	e.bare.setNode(after.Name, true)
}

func (e *Engine) setSlice(before, after *resourcev1.ResourceSlice) {
	e.queues.capacityStale = true
	e.bare.addSlice(before, -1)
	e.bare.addSlice(after, 1)
	changed := map[string]bool{}
	if before != nil {
		delete(e.pools[before.Spec.Pool.Name], before.Name)
		changed[before.Spec.Pool.Name] = true
	}
	if after != nil && after.Spec.Driver == v1alpha1.Driver {
		name := after.Spec.Pool.Name
		if e.pools[name] == nil {
			e.pools[name] = map[string]*resourcev1.ResourceSlice{}
		}
		e.pools[name][after.Name] = after
		changed[name] = true
	}
	for name := range changed {
		var all []*resourcev1.ResourceSlice
		for _, slice := range slices.Sorted(maps.Keys(e.pools[name])) {
			all = append(all, e.pools[name][slice])
		}
		if len(all) == 0 {
			delete(e.pools, name)
		}
		e.ledger.SetPool(name, all)
	}
}

func (e *Engine) setClasses(objects []any) {
	var classes []*resourcev1.DeviceClass
	for _, object := range objects {
		if class, ok := object.(*resourcev1.DeviceClass); ok {
			classes = append(classes, class)
		}
	}
	slices.SortFunc(classes, func(a, b *resourcev1.DeviceClass) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	e.ledger.SetClasses(classes)
}

func (e *Engine) setClaim(before, after *resourcev1.ResourceClaim) {
	if after == nil {
		e.ledger.SetClaim(before.Namespace+"/"+before.Name, nil)
		e.touchClaim(before.Namespace+"/"+before.Name, nil)
		e.heardOrder(before, nil)
		return
	}
	if owner := metav1.GetControllerOf(after); owner != nil && forExtended(after) && has(after) {
		key := after.Namespace + "/" + extendedName(owner.UID)
		e.ledger.Unreserve(key)
		delete(e.noted, key)
		e.unwritten.set(key, false)
	}
	if has(after) {
		delete(e.noted, after.Namespace+"/"+after.Name)
	}
	e.ledger.SetClaim(after.Namespace+"/"+after.Name, after)
	e.touchClaim(after.Namespace+"/"+after.Name, after)
	e.heardOrder(before, after)
}
