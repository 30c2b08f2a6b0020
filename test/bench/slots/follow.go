package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// errUnassigned is a pod with a node and a request that nobody assigned a GPU.
var errUnassigned = errors.New("it was bound without an assignment")

const (
	// againAfter is the time between two tries to watch while the API server is away.
	againAfter = 50 * time.Millisecond
	// mostFaults bounds how many faults are told.
	mostFaults = 20
)

// record follows each change of pods and holds it against what there is: at no moment may anything be given twice. Anybody may
// call its methods.
type record struct {
	mutex  sync.Mutex
	ledger *ledger
	pods   map[types.UID]*corev1.Pod
	rounds map[string]*tally
	// bound counts the pods with a request that got a node, gaps how often a watch could not go on where it had ended.
	bound, gaps int
	// twice counts what was given twice or wrongly, unassigned the pods that were bound without an assignment.
	twice, unassigned int
	faults            []error
	changed           chan struct{} // closed and made anew at each change
}

// tally is of the pods of one round.
type tally struct {
	bound, waiting map[types.UID]bool
	first, last    time.Time // when pods were seen bound
}

func newRecord(fleet []machine) *record {
	return &record{ledger: newLedger(fleet), pods: map[types.UID]*corev1.Pod{}, rounds: map[string]*tally{}, changed: make(chan struct{})}
}

// follow follows the pods until the context ends. A watch goes on after the last revision that it told of.
func (r *record) follow(ctx context.Context, client kubernetes.Interface) {
	last := ""
	for ctx.Err() == nil {
		var err error
		if last == "" {
			last, err = r.list(ctx, client)
		}
		if err == nil {
			last, err = r.until(ctx, client, last)
		}
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			last = ""
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(againAfter):
		}
	}
}

func (r *record) list(ctx context.Context, client kubernetes.Interface) (revision string, err error) {
	list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list the pods: %w", err)
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.gaps++
	there := map[types.UID]bool{}
	for i := range list.Items {
		there[list.Items[i].UID] = true
	}
	for uid, pod := range r.pods {
		if !there[uid] {
			r.see(pod, true)
		}
	}
	for i := range list.Items {
		r.see(&list.Items[i], false)
	}
	return list.ResourceVersion, nil
}

// until follows one watch to its end, and returns the last revision that it told of.
func (r *record) until(ctx context.Context, client kubernetes.Interface, last string) (string, error) {
	w, err := client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: last, AllowWatchBookmarks: true})
	if err != nil {
		return last, fmt.Errorf("watch the pods: %w", err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if event.Type == watch.Error || !ok {
			return last, apierrors.FromObject(event.Object)
		}
		if event.Type != watch.Bookmark {
			r.mutex.Lock()
			r.see(pod, event.Type == watch.Deleted)
			r.mutex.Unlock()
		}
		last = pod.ResourceVersion
	}
	return last, nil
}

// see takes in a change.
func (r *record) see(pod *corev1.Pod, gone bool) {
	before := r.pods[pod.UID]
	for _, err := range r.ledger.see(pod, gone) {
		if before != nil && before.Spec.NodeName != "" {
			continue // told when it was bound
		}
		if errors.Is(err, errUnassigned) {
			r.unassigned++
		} else {
			r.twice++
		}
		if len(r.faults) < mostFaults {
			r.faults = append(r.faults, err)
		}
	}
	r.settle(pod, before, gone)
	if gone {
		delete(r.pods, pod.UID)
	} else {
		r.pods[pod.UID] = pod
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *record) settle(pod, before *corev1.Pod, gone bool) {
	round := r.rounds[pod.Labels[roundLabel]]
	switch {
	case gone:
	case pod.Spec.NodeName != "":
		if before != nil && before.Spec.NodeName != "" {
			return
		}
		if _, asks := pod.Annotations[v1alpha1.RequestAnnotation]; asks {
			r.bound++
		}
		if round != nil {
			round.bound[pod.UID], round.last = true, time.Now()
			if round.first.IsZero() {
				round.first = round.last
			}
			delete(round.waiting, pod.UID)
		}
	case round != nil && unschedulable(pod):
		round.waiting[pod.UID] = true
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

// begin counts the pods of a round from now on.
func (r *record) begin(round string) *tally {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	t := &tally{bound: map[types.UID]bool{}, waiting: map[types.UID]bool{}}
	r.rounds[round] = t
	return t
}

// end forgets a round and returns what became of its pods.
func (r *record) end(round string) tally {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	t := *r.rounds[round]
	delete(r.rounds, round)
	return t
}

// when waits until a condition on the record holds, which is asked while nothing changes. The error is the context's cause.
func (r *record) when(ctx context.Context, condition func() bool) error {
	for {
		r.mutex.Lock()
		holds, changed := condition(), r.changed
		r.mutex.Unlock()
		if holds {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// wrong is what was given twice, or not at all.
func (r *record) wrong() error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return errors.Join(r.faults...)
}
