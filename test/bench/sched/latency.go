package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	bindTime = "sched.bind_p99_ms"
	// offered is how many pods are made in a second, for how long.
	offered, offeredFor = 50, 20 * time.Second
)

// measureBindTime offers pods at a steady rate, and follows each from its creation to its binding.
func measureBindTime(ctx context.Context, o options) (rows []measurement.Row, err error) {
	b, err := openOurs(ctx, o, o.NodesOr(5000), true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	shares, err := namedPods("share", smallShare)
	if err != nil {
		return nil, err
	}
	kinds := []kind{shares, plainPods}
	if err := b.warm(ctx, kinds...); err != nil {
		return nil, err
	}
	var p99 [2][]float64
	var p50 [2][]float64
	for run := range 3 {
		for at := range kinds {
			which := (run + at) % len(kinds)
			took, err := b.offer(ctx, kinds[which])
			if err != nil {
				return nil, err
			}
			p50[which], p99[which] = append(p50[which], took[len(took)/2]), append(p99[which], took[len(took)*99/100])
			if err := b.clear(ctx); err != nil {
				return nil, err
			}
		}
	}
	on := fmt.Sprintf("%d nodes, %d pods/s offered", b.nodes, offered)
	median := func(runs []float64) float64 { m, _ := measurement.Summary(runs, measurement.Lower); return m }
	note := fmt.Sprintf("p50 %.0f ms; plain pods of Kubernetes' scheduler in turn: p50 %.0f ms, p99 %.0f ms", median(p50[0]), median(p50[1]), median(p99[1]))
	return []measurement.Row{target.Less(bindTime, on, "ms", 100, p99[0], note)}, nil
}

// times has when pods were made and bound.
type times struct {
	mutex       sync.Mutex
	made, bound map[string]time.Time
}

func (t *times) see(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" {
		return
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.bound[pod.Name].IsZero() {
		t.bound[pod.Name] = time.Now()
	}
}

// offer makes pods at a steady rate and returns how long each waited for its node, in ms and in order.
func (b *bench) offer(ctx context.Context, k kind) ([]float64, error) {
	n := b.Few(int(offered * offeredFor.Seconds()))
	b.rounds++
	mark := labels.Set{roundLabel: fmt.Sprint(b.rounds)}
	t, seen := &times{made: map[string]time.Time{}, bound: map[string]time.Time{}}, newTally()
	seen.also = t.see
	unwatch, err := b.watch(ctx, mark, seen)
	if err != nil {
		return nil, err
	}
	defer unwatch()
	ctx, cancel := context.WithTimeoutCause(ctx, offeredFor+roundLimit, errTimeUp)
	defer cancel()
	ticker := time.NewTicker(time.Second / offered)
	defer ticker.Stop()
	made := make(chan error, n)
	for i := range n {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		pod := podOf(k, i)
		pod.Labels = mark
		t.mutex.Lock()
		t.made[pod.Name] = time.Now()
		t.mutex.Unlock()
		go func() {
			_, err := b.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
			made <- err
		}()
	}
	all := make(chan error, 1)
	go func() {
		var errs error
		for range n {
			errs = errors.Join(errs, <-made)
		}
		all <- errs
	}()
	if err := b.settle(ctx, seen, func(bound, _ int) bool { return bound == n }, all); err != nil {
		return nil, fmt.Errorf("offer pods: %w", err)
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	var took []float64
	for name, at := range t.made {
		took = append(took, t.bound[name].Sub(at).Seconds()*1000)
	}
	slices.Sort(took)
	return took, nil
}
