package controller

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// known is the controller's view of the cluster.
type known struct {
	slices, templates, others informers.SharedInformerFactory
	changed                   chan struct{} // has room for one: something is different from before
}

func newKnown(client kubernetes.Interface) *known {
	only := func(tweak func(*metav1.ListOptions)) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(lighten), informers.WithTweakListOptions(tweak))
	}
	return &known{
		slices: only(func(o *metav1.ListOptions) {
			o.FieldSelector = resourcev1.ResourceSliceSelectorDriver + "=" + v1alpha1.Driver
		}),
		templates: only(func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.ManagedLabel + "=" + v1alpha1.ManagedBy }),
		others:    only(func(*metav1.ListOptions) {}),
		changed:   make(chan struct{}, 1),
	}
}

// lighten drops from cached objects what nobody reads here: of pods, almost everything.
func lighten(object any) (any, error) {
	if m, err := meta.Accessor(object); err == nil {
		m.SetManagedFields(nil)
	}
	switch o := object.(type) {
	case *corev1.Pod:
		spec := corev1.PodSpec{NodeName: o.Spec.NodeName}
		if len(o.Spec.ResourceClaims) > 0 {
			spec.ResourceClaims, spec.NodeSelector = o.Spec.ResourceClaims, o.Spec.NodeSelector
			spec.Affinity, spec.Tolerations = o.Spec.Affinity, o.Spec.Tolerations
		}
		o.Spec = spec
		o.Status = corev1.PodStatus{Phase: o.Status.Phase, Conditions: o.Status.Conditions, ResourceClaimStatuses: o.Status.ResourceClaimStatuses}
		o.Annotations, o.Labels = nil, nil
	case *corev1.Node:
		o.Annotations, o.Status = nil, corev1.NodeStatus{}
	}
	return object, nil
}

// start begins to watch and returns once everything has been read.
func (k *known) start(ctx context.Context) error {
	noticed := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { k.notice() },
		UpdateFunc: func(_, _ any) { k.notice() },
		DeleteFunc: func(any) { k.notice() },
	}
	var synced []cache.InformerSynced
	for _, informer := range []cache.SharedIndexInformer{
		k.slices.Resource().V1().ResourceSlices().Informer(),
		k.others.Resource().V1().ResourceClaims().Informer(),
		k.others.Resource().V1().DeviceClasses().Informer(),
		k.others.Core().V1().Pods().Informer(),
	} {
		registration, err := informer.AddEventHandler(noticed)
		if err != nil {
			return fmt.Errorf("watch the cluster: %w", err)
		}
		synced = append(synced, registration.HasSynced)
	}
	// Nodes report every few seconds, which changes nothing here; they are looked at when something else does.
	synced = append(synced, k.others.Core().V1().Nodes().Informer().HasSynced,
		k.templates.Resource().V1().ResourceClaimTemplates().Informer().HasSynced)
	for _, factory := range []informers.SharedInformerFactory{k.slices, k.templates, k.others} {
		factory.Start(ctx.Done())
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return errors.New("read the cluster: ended before everything was read")
	}
	return nil
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

func (k *known) pods() ([]*corev1.Pod, error) {
	pods, err := k.others.Core().V1().Pods().Lister().List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list the pods: %w", err)
	}
	return pods, nil
}

func (k *known) templatesAndPods() ([]*resourcev1.ResourceClaimTemplate, []*corev1.Pod, error) {
	// The templates first: what is in use when they are read is in use when the pods are.
	templates, err := k.templates.Resource().V1().ResourceClaimTemplates().Lister().List(labels.Everything())
	if err != nil {
		return nil, nil, fmt.Errorf("list the claim templates: %w", err)
	}
	pods, err := k.pods()
	return templates, pods, err
}

// cluster returns the cluster as it is now.
func (k *known) cluster(ctx context.Context, compiled *dracel.Cache) (*cluster, error) {
	published, first := k.slices.Resource().V1().ResourceSlices().Lister().List(labels.Everything())
	claims, second := k.others.Resource().V1().ResourceClaims().Lister().List(labels.Everything())
	classes, third := k.others.Resource().V1().DeviceClasses().Lister().List(labels.Everything())
	nodes, fourth := k.others.Core().V1().Nodes().Lister().List(labels.Everything())
	if err := errors.Join(first, second, third, fourth); err != nil {
		return nil, fmt.Errorf("list the cluster's GPUs: %w", err)
	}
	return newCluster(ctx, published, claims, classes, nodes, compiled), nil
}

func (k *known) claim(namespace, name string) (*resourcev1.ResourceClaim, error) {
	claim, err := k.others.Resource().V1().ResourceClaims().Lister().ResourceClaims(namespace).Get(name)
	if err != nil {
		return nil, fmt.Errorf("read the claim %s/%s: %w", namespace, name, err)
	}
	return claim, nil
}
