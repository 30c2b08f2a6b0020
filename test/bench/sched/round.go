package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// roundLabel tells the pods of one round from others.
const roundLabel = "bench.divvy.dev/round"

// outcome is what became of the pods of a round.
type outcome struct {
	// bound are pods with a node, waiting those for which the scheduler found none. rest are neither.
	bound, waiting, rest int
	// took is the time from the first pod's creation until the last one was bound, or until time was up.
	took time.Duration
	// scheduler and server are the processor times that these took meanwhile.
	scheduler, server time.Duration
}

// rate is in pods per second.
func (o outcome) rate() float64 { return float64(o.bound) / o.took.Seconds() }

// costs tells the processor time for each pod, in ms.
func (o outcome) costs() string {
	each := func(d time.Duration) float64 { return d.Seconds() * 1000 / float64(max(o.bound, 1)) }
	return fmt.Sprintf("scheduler %.1f ms, API server %.1f ms", each(o.scheduler), each(o.server))
}

// tally follows the pods of a round.
type tally struct {
	mutex          sync.Mutex
	bound, waiting map[string]bool
	last           time.Time     // when the last pod was bound
	changed        chan struct{} // holds a token after a change
	also           func(*corev1.Pod)
}

func newTally() *tally {
	return &tally{bound: map[string]bool{}, waiting: map[string]bool{}, changed: make(chan struct{}, 1)}
}

// see takes a pod as it is now.
func (t *tally) see(object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	if t.also != nil {
		t.also(pod)
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	switch {
	case pod.Spec.NodeName != "":
		if t.bound[pod.Name] {
			return
		}
		t.bound[pod.Name] = true
		delete(t.waiting, pod.Name)
		t.last = time.Now()
	case unschedulable(pod):
		t.waiting[pod.Name] = true
	default:
		return
	}
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

func unschedulable(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled {
			return condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable
		}
	}
	return false
}

func (t *tally) count() (bound, waiting int, last time.Time) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return len(t.bound), len(t.waiting), t.last
}

// round makes n pods of each kind, in turn, and waits until settled holds or time is up. That time is up is no error:
// the outcome tells how many were bound.
func (b *bench) round(ctx context.Context, n int, limit time.Duration, settled func(bound, waiting int) bool, kinds ...kind) (outcome, error) {
	return b.roundWith(ctx, newTally(), n, limit, settled, kinds...)
}

// roundWith is round with a tally that tells somebody else too.
func (b *bench) roundWith(ctx context.Context, t *tally, n int, limit time.Duration, settled func(bound, waiting int) bool, kinds ...kind) (outcome, error) {
	for _, k := range kinds {
		if err := b.prepare(ctx, k); err != nil {
			return outcome{}, err
		}
	}
	b.rounds++
	mark := labels.Set{roundLabel: strconv.Itoa(b.rounds)}
	unwatch, err := b.watch(ctx, mark, t)
	if err != nil {
		return outcome{}, err
	}
	defer unwatch()
	before, err := b.processorTimes(kinds[0])
	if err != nil {
		return outcome{}, err
	}
	begin := time.Now()
	bounded, cancel := context.WithTimeoutCause(ctx, limit, errTimeUp)
	defer cancel()
	// Pods are made while others are placed, as in a cluster.
	made := make(chan error, 1)
	go func() {
		made <- each(bounded, n*len(kinds), func(ctx context.Context, i int) error {
			pod := podOf(kinds[i%len(kinds)], i)
			pod.Labels = labels.Merge(pod.Labels, mark)
			_, err := b.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
	}()
	err = b.settle(bounded, t, settled, made)
	if err != nil && !errors.Is(err, errTimeUp) {
		return outcome{}, err
	}
	o := outcome{took: time.Since(begin)}
	var last time.Time
	if o.bound, o.waiting, last = t.count(); err == nil && o.bound > 0 {
		o.took = last.Sub(begin)
	}
	o.rest = n*len(kinds) - o.bound - o.waiting
	after, err := b.processorTimes(kinds[0])
	o.scheduler, o.server = after[0]-before[0], after[1]-before[1]
	return o, err
}

// errTimeUp ends a round that takes too long.
var errTimeUp = errors.New("time is up")

// settle waits until all pods are made and a condition on them holds.
func (b *bench) settle(ctx context.Context, t *tally, settled func(bound, waiting int) bool, made <-chan error) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	all := false
	for {
		if bound, waiting, _ := t.count(); all && settled(bound, waiting) {
			return nil
		}
		select {
		case err := <-made:
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("make pods: %w", err)
			}
			all = true
		case <-t.changed:
		case <-ticker.C:
			if err := b.Alive(); err != nil {
				return err
			}
		case <-ctx.Done():
			if !all {
				return errors.Join(context.Cause(ctx), <-made)
			}
			return context.Cause(ctx)
		}
	}
}

// watch has a tally follow the pods with a label until the function that it returns is called.
func (b *bench) watch(ctx context.Context, mark labels.Set, t *tally) (func(), error) {
	ctx, cancel := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(b.client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = mark.String() }))
	end := func() {
		cancel()
		factory.Shutdown()
	}
	informer := factory.Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: t.see, UpdateFunc: func(_, now any) { t.see(now) }})
	if err != nil {
		end()
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		end()
		return nil, fmt.Errorf("watch pods: %w", context.Cause(ctx))
	}
	return end, nil
}

// processorTimes are those of a kind's scheduler and of the API server so far.
func (b *bench) processorTimes(k kind) (times [2]time.Duration, err error) {
	for i, name := range []string{cmp.Or(k.scheduler, plane.Scheduler), plane.APIServer} {
		if times[i], err = b.Process(name).Processor(); err != nil {
			return times, err
		}
	}
	return times, nil
}

// placed makes n pods of a kind, waits until they are bound, holds the claims against the slices, and removes all.
func (b *bench) placed(ctx context.Context, k kind, n int, limit time.Duration) (outcome, error) {
	o, err := b.round(ctx, n, limit, func(bound, _ int) bool { return bound == n }, k)
	if err != nil {
		return o, err
	}
	b.Say("%s: %d of %d pods bound in %.1f s: %.1f pods/s, %s a pod", k.name, o.bound, n, o.took.Seconds(), o.rate(), o.costs())
	if k.gpus() {
		if err := b.check(ctx); err != nil {
			return o, err
		}
	}
	return o, b.clear(ctx)
}

// check holds what was allocated against what is published.
func (b *bench) check(ctx context.Context) error {
	slices, err := b.slices(ctx)
	if err != nil {
		return err
	}
	// The pods first: whatever has a node by then has its claim.
	pods, err := b.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("read the pods: %w", err)
	}
	claims, err := b.client.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("read the claims: %w", err)
	}
	return errors.Join(verify(slices, claims.Items, pods.Items), overdrawn(slices, claims.Items))
}
