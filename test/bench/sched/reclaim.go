package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	reclaimTime = "queue.reclaim_s"
	// reclaimNodes have eight GPUs each, reclaimRuns is how often they are taken back.
	reclaimNodes, reclaimRuns = 500, 3
	// reclaimLimit bounds the filling of the cluster, and then the taking back.
	reclaimLimit = 5 * time.Minute
)

// measureReclaim has a gang take back all GPUs of the cluster from borrowers of one GPU each.
func measureReclaim(ctx context.Context, o options) (rows []measurement.Row, err error) {
	q, err := openQueued(ctx, o, o.NodesOr(reclaimNodes))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, q.Stop()) }()
	gpus := q.nodes * len(q.inventory)
	if err := q.configure(ctx, map[string]string{
		"a": "{namespaces: [" + namespace + "], grace: 1s, resources: [{weight: 1}]}",
		"b": fmt.Sprintf("{namespaces: [%s], grace: 1s, resources: [{guaranteed: %d}]}", namespace, gpus),
	}); err != nil {
		return nil, err
	}
	var all []float64
	var last outcome
	for run := range min(o.Rounds(), reclaimRuns) {
		took, o, err := q.reclaim(ctx, run)
		if err != nil {
			return nil, err
		}
		all, last = append(all, took.Seconds()), o
	}
	note := fmt.Sprintf("a gang of %d x %d GPUs takes them back from %d borrowers of one GPU, grace 1 s; from the creation of its last member until all are bound; "+
		"the last run took of processors scheduler %.1f s, API server %.1f s", q.nodes, len(q.inventory), gpus, last.scheduler.Seconds(), last.server.Seconds())
	return []measurement.Row{queueRow(reclaimTime, "s", 45, measurement.Lower, note, all...)}, nil
}

// reclaim fills the cluster with borrowers, has a gang take everything back, and holds all claims against the slices meanwhile. It
// returns the time from the creation of the gang's last member until all are bound.
func (q *queued) reclaim(ctx context.Context, run int) (took time.Duration, o outcome, err error) {
	guarding, err := q.guard(ctx)
	if err != nil {
		return 0, o, err
	}
	defer func() { err = errors.Join(err, guarding()) }()
	borrowers, err := namedPods(fmt.Sprintf("borrower-%d", run), wholeGPUs(1))
	if err != nil {
		return 0, o, err
	}
	n := q.nodes * len(q.inventory)
	o, err = q.round(ctx, n, reclaimLimit, func(bound, _ int) bool { return bound == n }, borrowers.in("a"))
	if err != nil || o.bound != n {
		return 0, o, errors.Join(err, fmt.Errorf("fill the cluster: %d of %d borrowers are bound", o.bound, n))
	}
	q.Say("%d borrowers bound in %.1f s", n, o.took.Seconds())
	members, err := namedPods(fmt.Sprintf("member-%d", run), wholeGPUs(len(q.inventory)))
	if err != nil {
		return 0, o, err
	}
	members.annotations = map[string]string{v1alpha1.GangAnnotation: members.name, v1alpha1.GangSizeAnnotation: strconv.Itoa(q.nodes)}
	m := &gangTimes{size: q.nodes, made: map[string]bool{}}
	t := newTally()
	t.also = m.see
	o, err = q.roundWith(ctx, t, q.nodes, reclaimLimit, func(bound, _ int) bool { return bound == q.nodes }, members.in("b"))
	if err != nil || o.bound != q.nodes {
		return 0, o, errors.Join(err, fmt.Errorf("take back: %d of %d members are bound, %d wait", o.bound, q.nodes, o.waiting))
	}
	took = m.bound.Sub(m.last)
	q.Say("%d members bound after %.1f s", q.nodes, took.Seconds())
	if err := errors.Join(q.check(ctx), q.keeps(ctx, "a", 0), q.keeps(ctx, "b", q.nodes)); err != nil {
		return 0, o, err
	}
	return took, o, q.clear(ctx)
}

// wholeGPUs are so many GPUs that nobody else has.
func wholeGPUs(count int) map[corev1.ResourceName]string {
	return map[corev1.ResourceName]string{v1alpha1.ResourceGPU: strconv.Itoa(count)}
}

// keeps says how many pods of a queue have a node and are not ending, if these are not as many as they should be.
func (q *queued) keeps(ctx context.Context, queue string, want int) error {
	list, err := q.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.Set{v1alpha1.QueueLabel: queue}.String()})
	if err != nil {
		return fmt.Errorf("read the pods of queue %s: %w", queue, err)
	}
	n := 0
	for i := range list.Items {
		if p := &list.Items[i]; p.Spec.NodeName != "" && p.DeletionTimestamp == nil {
			n++
		}
	}
	if n != want {
		return fmt.Errorf("queue %s keeps %d pods, and should %d", queue, n, want)
	}
	return nil
}
