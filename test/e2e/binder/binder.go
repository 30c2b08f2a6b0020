package binder

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Binder binds the pods that name it as their scheduler.
type Binder struct {
	Client kubernetes.Interface
	// Scheduler is the name that pods give.
	Scheduler string
	Log       *slog.Logger

	pods  listers.PodLister
	nodes listers.NodeLister
	// assumed are pods that were bound and not yet seen bound.
	assumed map[types.UID]placement
	// told is what was last said of a pod that waits.
	told map[types.UID]string
}

// placement is a pod that has a node.
type placement struct {
	node       string
	assignment v1alpha1.PodAssignment
}

// retry is when a pod that could not be bound is tried again without a change.
const retry = 2 * time.Second

// Run binds pods until ctx is done.
func (b *Binder) Run(ctx context.Context) error {
	b.assumed, b.told = make(map[types.UID]placement), make(map[types.UID]string)
	factory := informers.NewSharedInformerFactory(b.Client, 0)
	b.pods, b.nodes = factory.Core().V1().Pods().Lister(), factory.Core().V1().Nodes().Lister()
	changed := make(chan struct{}, 1)
	notice := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { notice() }, UpdateFunc: func(any, any) { notice() }, DeleteFunc: func(any) { notice() },
	}
	for _, informer := range []cache.SharedIndexInformer{factory.Core().V1().Pods().Informer(), factory.Core().V1().Nodes().Informer()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watch pods and nodes: %w", err)
		}
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	factory.WaitForCacheSync(ctx.Done())
	for {
		var again <-chan time.Time
		if err := b.bindAll(ctx); err != nil {
			b.Log.Warn("not all pods are bound", "error", err)
			again = time.After(retry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-again:
		}
	}
}

// bindAll binds every pod that waits and fits.
func (b *Binder) bindAll(ctx context.Context) error {
	pods, err := b.pods.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	nodes, err := b.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	placed := b.placed(pods)
	for _, pod := range pods {
		if pod.Spec.NodeName != "" || pod.Spec.SchedulerName != b.Scheduler || pod.DeletionTimestamp != nil {
			continue
		}
		if _, bound := b.assumed[pod.UID]; bound {
			continue
		}
		request, err := v1alpha1.ParsePodRequest(pod.Annotations[v1alpha1.RequestAnnotation])
		if err == nil {
			var p placement
			if p.node, p.assignment, err = place(ctx, machines(nodes, placed), string(pod.UID), request); err == nil {
				if err := b.bind(ctx, pod, p); err != nil {
					return err
				}
				placed = append(placed, p)
				continue
			}
		}
		if err := b.tell(ctx, pod, err.Error()); err != nil {
			return err
		}
	}
	return nil
}

// placed returns what pods hold: those that were bound and have not ended.
func (b *Binder) placed(pods []*corev1.Pod) []placement {
	var all []placement
	known := make(map[types.UID]bool)
	for _, pod := range pods {
		known[pod.UID] = true
		if pod.Spec.NodeName == "" {
			continue
		}
		delete(b.assumed, pod.UID)
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		if a, err := v1alpha1.ParsePodAssignment(pod.Annotations[v1alpha1.AssignmentAnnotation]); err == nil {
			all = append(all, placement{node: pod.Spec.NodeName, assignment: a})
		}
	}
	for uid, p := range b.assumed {
		if !known[uid] {
			delete(b.assumed, uid)
			continue
		}
		all = append(all, p)
	}
	for uid := range b.told {
		if !known[uid] {
			delete(b.told, uid)
		}
	}
	return all
}

func (b *Binder) bind(ctx context.Context, pod *corev1.Pod, p placement) error {
	text, err := p.assignment.Text()
	if err != nil {
		return err
	}
	err = b.Client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			Annotations: map[string]string{v1alpha1.AssignmentAnnotation: text},
		},
		Target: corev1.ObjectReference{Kind: "Node", Name: p.node},
	}, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or bound by another: the next look tells
	}
	if err != nil {
		return fmt.Errorf("bind %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	b.assumed[pod.UID] = p
	b.Log.Info("bound", "pod", pod.Namespace+"/"+pod.Name, "node", p.node)
	return nil
}

// tell writes the reason why a pod waits as an event, once for each reason.
func (b *Binder) tell(ctx context.Context, pod *corev1.Pod, reason string) error {
	if b.told[pod.UID] == reason {
		return nil
	}
	now := metav1.Now()
	_, err := b.Client.CoreV1().Events(pod.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: pod.Name + ".", Namespace: pod.Namespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Reason:         "NoShareFits", Message: reason, Type: corev1.EventTypeWarning, Source: corev1.EventSource{Component: "divvy"},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("say why %s/%s waits: %w", pod.Namespace, pod.Name, err)
	}
	b.told[pod.UID] = reason
	return nil
}
