package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// known is the controller's view of the cluster.
type known struct {
	slices, templates, others informers.SharedInformerFactory
	changed                   chan struct{} // has room for one: something is different from before

	mu    sync.Mutex
	stale stale
}

// stale is what has changed since it was taken in last. Keys are those of the informers, and pools are by name.
type stale struct {
	pools, claims, nodes map[string]bool
	classes              bool
}

func newStale() stale {
	return stale{pools: map[string]bool{}, claims: map[string]bool{}, nodes: map[string]bool{}}
}

// The indexes of the informers.
const (
	byPool    = "pool"
	byWaiting = "waiting"
	byRemote  = "remote"
)

func newKnown(client kubernetes.Interface, scheduler string) *known {
	only := func(tweak func(*metav1.ListOptions)) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(lightenBeside(scheduler)), informers.WithTweakListOptions(tweak))
	}
	return &known{
		slices: only(func(o *metav1.ListOptions) {
			o.FieldSelector = resourcev1.ResourceSliceSelectorDriver + "=" + v1alpha1.Driver
		}),
		templates: only(func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.ManagedLabel + "=" + v1alpha1.ManagedBy }),
		others:    only(func(*metav1.ListOptions) {}),
		changed:   make(chan struct{}, 1),
		stale:     newStale(),
	}
}

// lightenBeside drops from cached objects what nobody reads here: of pods and of claims that have their GPUs, almost
// everything. The name is that of Divvy's scheduler.
func lightenBeside(scheduler string) cache.TransformFunc {
	return func(object any) (any, error) { return lighten(object, scheduler) }
}

func lighten(object any, scheduler string) (any, error) {
	if m, err := meta.Accessor(object); err == nil {
		m.SetManagedFields(nil)
	}
	switch o := object.(type) {
	case *corev1.Pod:
		slimPod(o, scheduler)
	case *corev1.Node:
		o.Annotations, o.Status = nil, corev1.NodeStatus{Conditions: readiness(o.Status.Conditions)}
	case *resourcev1.ResourceClaim:
		lightenClaim(o)
	case *resourcev1.ResourceClaimTemplate:
		slimTemplate(o)
	}
	return object, nil
}

func lightenClaim(claim *resourcev1.ResourceClaim) {
	claim.Annotations, claim.Labels, claim.Finalizers, claim.OwnerReferences = nil, nil, nil, ownerOf(claim)
	before := claim.Status.Allocation
	claim.Status = resourcev1.ResourceClaimStatus{}
	if before == nil {
		slimClaim(claim)
		return
	}
	claim.Spec = resourcev1.ResourceClaimSpec{}
	claim.Status.Allocation = &resourcev1.AllocationResult{}
	for i := range before.Devices.Results {
		r := &before.Devices.Results[i]
		if r.Driver == v1alpha1.Driver {
			claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{
				Driver: r.Driver, Pool: r.Pool, Device: r.Device, AdminAccess: r.AdminAccess, ConsumedCapacity: r.ConsumedCapacity,
			})
		}
	}
}

// start begins to watch and returns once everything has been read.
func (k *known) start(ctx context.Context) error {
	pods, published := k.others.Core().V1().Pods().Informer(), k.slices.Resource().V1().ResourceSlices().Informer()
	err := errors.Join(
		pods.AddIndexers(cache.Indexers{byWaiting: waitingIndex}),
		published.AddIndexers(cache.Indexers{byPool: poolIndex, byRemote: remoteSlices}),
		k.others.Resource().V1().ResourceClaims().Informer().AddIndexers(cache.Indexers{byRemote: remoteClaims}))
	var synced []cache.InformerSynced
	for _, one := range []struct {
		informer cache.SharedIndexInformer
		note     func(*stale, any)
		rouses   bool
	}{
		{published, noteSlice, true},
		{k.others.Resource().V1().ResourceClaims().Informer(), func(s *stale, object any) { s.claims[keyOf(object)] = true }, true},
		{k.others.Resource().V1().DeviceClasses().Informer(), func(s *stale, _ any) { s.classes = true }, true},
		{pods, func(*stale, any) {}, true},
		// Nodes report every few seconds, which changes nothing here; they are looked at when something else does.
		{k.others.Core().V1().Nodes().Informer(), func(s *stale, object any) { s.nodes[keyOf(object)] = true }, false},
	} {
		registration, fault := one.informer.AddEventHandler(k.noting(one.note, one.rouses))
		if fault != nil {
			err = errors.Join(err, fault)
			break
		}
		synced = append(synced, registration.HasSynced)
	}
	if err != nil {
		return fmt.Errorf("watch the cluster: %w", err)
	}
	synced = append(synced, k.templates.Resource().V1().ResourceClaimTemplates().Informer().HasSynced)
	for _, factory := range []informers.SharedInformerFactory{k.slices, k.templates, k.others} {
		factory.Start(ctx.Done())
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return errors.New("read the cluster: ended before everything was read")
	}
	return nil
}

// noting notes what has changed.
func (k *known) noting(note func(*stale, any), rouses bool) cache.ResourceEventHandler {
	noted := func(objects ...any) {
		k.mu.Lock()
		for _, object := range objects {
			note(&k.stale, object)
		}
		k.mu.Unlock()
		if rouses {
			k.notice()
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { noted(object) }, UpdateFunc: func(before, after any) { noted(before, after) }, DeleteFunc: func(object any) { noted(object) },
	}
}

// keyOf is an object's key in its informer.
func keyOf(object any) string {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return "" // of which there is no object
	}
	return key
}

func noteSlice(s *stale, object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	if slice, ok := object.(*resourcev1.ResourceSlice); ok {
		s.pools[slice.Spec.Pool.Name] = true
	}
}

func poolIndex(object any) ([]string, error) {
	if slice, ok := object.(*resourcev1.ResourceSlice); ok {
		return []string{slice.Spec.Pool.Name}, nil
	}
	return nil, nil
}

func waitingIndex(object any) ([]string, error) {
	if pod, ok := object.(*corev1.Pod); ok && len(pod.Spec.ResourceClaims) > 0 && pod.Spec.SchedulerName != v1alpha1.SchedulerName && waiting(pod) {
		return []string{byWaiting}, nil
	}
	return nil, nil
}

// stop waits until nothing is watched any more; the context of start has ended.
func (k *known) stop() {
	k.slices.Shutdown()
	k.templates.Shutdown()
	k.others.Shutdown()
}

func (k *known) notice() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// waiting returns the pods with claims that wait for the scheduler.
func (k *known) waiting() ([]*corev1.Pod, error) {
	objects, err := k.others.Core().V1().Pods().Informer().GetIndexer().ByIndex(byWaiting, byWaiting)
	if err != nil {
		return nil, fmt.Errorf("list the waiting pods: %w", err)
	}
	pods := make([]*corev1.Pod, 0, len(objects))
	for _, object := range objects {
		if pod, ok := object.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

func (k *known) pod(namespace, name string) (*corev1.Pod, error) {
	pod, err := k.others.Core().V1().Pods().Lister().Pods(namespace).Get(name)
	if err != nil {
		return nil, fmt.Errorf("read the pod %s/%s: %w", namespace, name, err)
	}
	return pod, nil
}

func (k *known) podsIn(namespace string) ([]*corev1.Pod, error) {
	pods, err := k.others.Core().V1().Pods().Lister().Pods(namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list the pods of namespace %s: %w", namespace, err)
	}
	return pods, nil
}

func (k *known) templatesAndPods() ([]*resourcev1.ResourceClaimTemplate, []*corev1.Pod, error) {
	// The templates first: what is in use when they are read is in use when the pods are.
	templates, first := k.templates.Resource().V1().ResourceClaimTemplates().Lister().List(labels.Everything())
	pods, second := k.others.Core().V1().Pods().Lister().List(labels.Everything())
	if err := errors.Join(first, second); err != nil {
		return nil, nil, fmt.Errorf("list the claim templates and their pods: %w", err)
	}
	return templates, pods, nil
}

// template returns a template of translated pods.
func (k *known) template(namespace, name string) (*resourcev1.ResourceClaimTemplate, error) {
	template, err := k.templates.Resource().V1().ResourceClaimTemplates().Lister().ResourceClaimTemplates(namespace).Get(name)
	if err != nil {
		return nil, fmt.Errorf("read the claim template %s/%s: %w", namespace, name, err)
	}
	return template, nil
}

func (k *known) templatesIn(namespace string) ([]*resourcev1.ResourceClaimTemplate, error) {
	templates, err := k.templates.Resource().V1().ResourceClaimTemplates().Lister().ResourceClaimTemplates(namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list the claim templates of namespace %s: %w", namespace, err)
	}
	return templates, nil
}

// refresh takes into the cluster what has changed.
func (k *known) refresh(c *cluster) error {
	k.mu.Lock()
	now := k.stale
	k.stale = newStale()
	k.mu.Unlock()
	if now.classes {
		classes, err := k.others.Resource().V1().DeviceClasses().Lister().List(labels.Everything())
		if err != nil {
			return fmt.Errorf("list the device classes: %w", err)
		}
		c.setClasses(classes)
	}
	for name := range now.nodes {
		node, _ := stored[*corev1.Node](k.others.Core().V1().Nodes().Informer(), name)
		c.setNode(name, node)
	}
	for name := range now.pools {
		objects, err := k.slices.Resource().V1().ResourceSlices().Informer().GetIndexer().ByIndex(byPool, name)
		if err != nil {
			return fmt.Errorf("list the slices of pool %s: %w", name, err)
		}
		published := make([]*resourcev1.ResourceSlice, 0, len(objects))
		for _, object := range objects {
			if slice, ok := object.(*resourcev1.ResourceSlice); ok {
				published = append(published, slice)
			}
		}
		c.setPool(name, published)
	}
	for key := range now.claims {
		claim, _ := stored[*resourcev1.ResourceClaim](k.others.Resource().V1().ResourceClaims().Informer(), key)
		c.setClaim(key, claim)
	}
	return nil
}

// stored is an informer's object of a key, if there is one.
func stored[T any](informer cache.SharedIndexInformer, key string) (found T, ok bool) {
	object, exists, err := informer.GetIndexer().GetByKey(key)
	if err != nil || !exists {
		return found, false
	}
	found, ok = object.(T)
	return found, ok
}

func (k *known) claim(namespace, name string) (*resourcev1.ResourceClaim, error) {
	claim, err := k.others.Resource().V1().ResourceClaims().Lister().ResourceClaims(namespace).Get(name)
	if err != nil {
		return nil, fmt.Errorf("read the claim %s/%s: %w", namespace, name, err)
	}
	return claim, nil
}
