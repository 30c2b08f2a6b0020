package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

// queueFigures are those of queues that need a control plane. They go to the file of the others.
func queueFigures(ctx context.Context, o options) []measurement.Figure {
	of := func(measure func(context.Context, options) ([]measurement.Row, error)) func() ([]measurement.Row, error) {
		return func() ([]measurement.Row, error) { return measure(ctx, o) }
	}
	return []measurement.Figure{
		{IDs: reclaimTime, Measure: of(measureReclaim)},
		{IDs: fairness, Measure: of(measureFairness)},
		{IDs: queueRatio, Measure: of(measureQueueRate)},
	}
}

// queueRow is a row of a figure of queues.
func queueRow(id, unit string, goal float64, better measurement.Direction, note string, runs ...float64) measurement.Row {
	r := measurement.Of(id, unit, goal, better, "make bench-queues ONLY="+id, runs...)
	r.Note = note
	return r
}

var (
	kindsResource  = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	queuesResource = schema.FromAPIVersionAndKind(v1alpha1.APIVersion, v1alpha1.KindQueue).GroupVersion().WithResource(v1alpha1.QueueResources)
)

// queued is a cluster whose API serves queues, with Divvy's scheduler alone, and whose nodes end pods at once when they are told to.
type queued struct {
	*bench
	objects dynamic.Interface
	obeying func() error
}

func openQueued(ctx context.Context, o options, nodes int) (*queued, error) {
	b, err := openIdle(ctx, o, nodes)
	if err != nil {
		return nil, err
	}
	q := &queued{bench: b, obeying: func() error { return nil }}
	for _, step := range []func() error{
		func() error { return q.serve(ctx) },
		func() error { return b.makeNodes(ctx) },
		func() error { return b.publish(ctx) },
		func() error { return b.StartSlowManager(ctx, "resourceclaim-controller") },
		func() error { return b.startOurs(ctx) },
		func() (err error) { q.obeying, err = q.obey(ctx); return err },
	} {
		if err := step(); err != nil {
			return nil, errors.Join(err, b.Stop())
		}
	}
	return q, nil
}

// Stop ends everything.
func (q *queued) Stop() error { return errors.Join(q.obeying(), q.bench.Stop()) }

// serve has the API serve queues, as users install them.
func (q *queued) serve(ctx context.Context) (err error) {
	if q.objects, err = dynamic.NewForConfig(q.Config()); err != nil {
		return fmt.Errorf("make the client of queues: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(q.root, "deploy", "manifests", "divvy-with-scheduler.yaml"))
	if err != nil {
		return fmt.Errorf("read what queues are: %w", err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if !strings.Contains(document, "\nkind: CustomResourceDefinition\n") {
			continue
		}
		var object unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			return fmt.Errorf("read what queues are: %w", err)
		}
		if _, err := q.objects.Resource(kindsResource).Create(ctx, &object, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("have the API serve queues: %w", err)
		}
	}
	return q.until(ctx, "the API serves queues", func() (bool, error) {
		_, err := q.objects.Resource(queuesResource).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// queuesLimit bounds how long the API and the scheduler take to notice queues.
const queuesLimit = time.Minute

func (q *queued) until(ctx context.Context, what string, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, queuesLimit, errTimeUp)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		}
		if err := q.Alive(); err != nil {
			return err
		}
	}
}

// configure makes queues, by name, and waits until the scheduler knows them.
func (q *queued) configure(ctx context.Context, specs map[string]string) error {
	for name, spec := range specs {
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": v1alpha1.KindQueue}}
		object.SetName(name)
		fields := map[string]any{}
		if err := yaml.Unmarshal([]byte(spec), &fields); err != nil {
			return fmt.Errorf("read queue %s: %w", name, err)
		}
		object.Object["spec"] = fields
		if _, err := q.objects.Resource(queuesResource).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make queue %s: %w", name, err)
		}
	}
	return q.until(ctx, "the scheduler knows the queues", func() (bool, error) {
		list, err := q.objects.Resource(queuesResource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for i := range list.Items {
			seen, _, err := unstructured.NestedInt64(list.Items[i].Object, "status", "observedGeneration")
			if err != nil || seen != list.Items[i].GetGeneration() {
				return false, err
			}
		}
		return len(list.Items) == len(specs), nil
	})
}

// unconfigure removes all queues.
func (q *queued) unconfigure(ctx context.Context) error {
	if err := q.objects.Resource(queuesResource).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("remove the queues: %w", err)
	}
	return q.until(ctx, "the queues are gone", func() (bool, error) {
		list, err := q.objects.Resource(queuesResource).List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0, err
	})
}

// in are the same pods in a queue.
func (k kind) in(queue string) kind {
	k.labels = map[string]string{v1alpha1.QueueLabel: queue}
	return k
}

var errUnheard = errors.New("the API server has ended a watch")

// hear tells of everything that happens to objects of a kind after a version, in the order in which it happened to all of them,
// which an informer does not keep. What it returns ends that, and says why not everything was told.
func hear(ctx context.Context, version string, watcher cache.WatcherWithContext, told func(watch.Event)) (end func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	events, err := watchtools.NewRetryWatcherWithContext(ctx, version, watcher)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch the API: %w", err)
	}
	ended := make(chan error, 1)
	go func() {
		var fault error
		for event := range events.ResultChan() {
			if event.Type == watch.Error {
				fault = fmt.Errorf("%w: %w", errUnheard, apierrors.FromObject(event.Object))
				continue
			}
			told(event)
		}
		if fault == nil && ctx.Err() == nil {
			fault = errUnheard
		}
		ended <- fault
	}()
	return sync.OnceValue(func() error {
		cancel()
		return <-ended
	}), nil
}

// hearPods tells of what happens to pods from now on. There is none yet.
func (b *bench) hearPods(ctx context.Context, told func(watch.EventType, *corev1.Pod)) (end func() error, err error) {
	pods := b.client.CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("read the pods: %w", err)
	}
	watcher := &cache.ListWatch{WatchFuncWithContext: pods.Watch}
	return hear(ctx, list.ResourceVersion, watcher, func(event watch.Event) {
		if pod, ok := event.Object.(*corev1.Pod); ok {
			told(event.Type, pod)
		}
	})
}

// obey ends pods that are being deleted, as nodes do. What it returns ends that, and says which could not be ended.
func (q *queued) obey(ctx context.Context) (end func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	ending := make(chan *corev1.Pod)
	seen := map[types.UID]bool{}
	unheard, err := q.hearPods(ctx, func(what watch.EventType, pod *corev1.Pod) {
		if what == watch.Deleted {
			delete(seen, pod.UID)
		} else if pod.DeletionTimestamp != nil && !seen[pod.UID] {
			seen[pod.UID] = true
			select {
			case ending <- pod:
			case <-ctx.Done():
			}
		}
	})
	if err != nil {
		cancel()
		return nil, err
	}
	var group sync.WaitGroup
	faults := make(chan error, writers)
	for range writers {
		group.Go(func() {
			var fault error
			for pod := range ending {
				now := int64(0)
				err := q.client.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
					GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
				})
				if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
					fault = fmt.Errorf("end pod %s: %w", pod.Name, err)
				}
			}
			faults <- fault
		})
	}
	return sync.OnceValue(func() error {
		cancel()
		err := unheard()
		close(ending)
		group.Wait()
		for range writers {
			err = errors.Join(err, <-faults)
		}
		return err
	}), nil
}
