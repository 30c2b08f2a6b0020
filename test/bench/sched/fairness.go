package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	fairness = "queue.fairness_points"
	// fairNodes have eight GPUs each. line is how many pods of a queue wait at all times, and life how long one runs in the mean.
	fairNodes, line, life = 100, 40, time.Minute
	// wholeChurn is how long the record's figure is taken.
	wholeChurn = 10 * time.Minute
	// quickChurn is how long it takes to see whether that works.
	quickChurn = 30 * time.Second
	// turnEvery is the time between two looks at lines and at who ends, sampleEvery that between two samples.
	turnEvery, sampleEvery = 100 * time.Millisecond, time.Second
)

// parts are what is guaranteed to the queues, in percent of all GPUs.
var parts = map[string]int{"a": 50, "b": 30, "c": 20}

// party is a queue whose line of waiting pods is kept filled.
type party struct {
	pods             kind
	entitled         int // GPUs
	made             int
	waiting, running map[string]bool
}

// next names another pod, which waits from now on.
func (p *party) next() *corev1.Pod {
	pod := podOf(p.pods, p.made)
	p.made++
	p.waiting[pod.Name] = true
	return pod
}

// crowd is queues with endless demand, whose pods have one GPU each and end at random.
type crowd struct {
	*queued
	mutex   sync.Mutex
	parties map[string]*party
	leaving map[string]bool // told to end by themselves
	evicted map[string]bool // ended for others
	left    int
}

// measureFairness samples how far the use of queues is from what they are entitled to.
func measureFairness(ctx context.Context, o options) (rows []measurement.Row, err error) {
	q, err := openQueued(ctx, o, o.NodesOr(fairNodes))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, q.Stop()) }()
	gpus := q.nodes * len(q.inventory)
	c := &crowd{queued: q, parties: map[string]*party{}, leaving: map[string]bool{}, evicted: map[string]bool{}}
	specs := map[string]string{}
	for name, percent := range parts {
		if gpus*percent%100 != 0 {
			return nil, fmt.Errorf("measure %s: %d %% of %d GPUs are no whole number: take a number of nodes that 5 divides", fairness, percent, gpus)
		}
		pods, err := namedPods(name, wholeGPUs(1))
		if err != nil {
			return nil, err
		}
		p := &party{pods: pods.in(name), entitled: gpus * percent / 100, waiting: map[string]bool{}, running: map[string]bool{}}
		c.parties[name] = p
		specs[name] = fmt.Sprintf("{namespaces: [%s], grace: 1s, resources: [{guaranteed: %d}]}", namespace, p.entitled)
	}
	if err := q.configure(ctx, specs); err != nil {
		return nil, err
	}
	largest, mean, err := c.follow(ctx, gpus)
	if err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%d GPUs; the mean over %d samples, one a second, of the largest distance of the three queues, whose mean distance was %.2f; "+
		"%.1f pods ended a second, and %d for others", gpus, len(largest), average(mean), float64(c.left)/o.churn.Seconds(), len(c.evicted))
	r := queueRow(fairness, "points", 1, measurement.Lower, note, largest...)
	r.Value, r.Runs = average(largest), 1
	return []measurement.Row{r}, nil
}

func average(all []float64) float64 {
	sum := 0.0
	for _, x := range all {
		sum += x
	}
	return sum / float64(max(len(all), 1))
}

// follow fills the cluster, has pods end and others come, and samples the largest and the mean distance of queues.
func (c *crowd) follow(ctx context.Context, gpus int) (largest, mean []float64, err error) {
	unheard, err := c.hearPods(ctx, c.see)
	if err != nil {
		return nil, nil, err
	}
	guarding, err := c.guard(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, unheard())
	}
	defer func() { err = errors.Join(err, guarding(), unheard()) }()
	if err := c.fill(ctx, gpus); err != nil {
		return nil, nil, err
	}
	churning, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.churns(churning) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for end := time.Now().Add(c.churn); time.Now().Before(end); {
		select {
		case <-ticker.C:
		case err := <-ended:
			ended <- nil
			return nil, nil, err
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
		far, middle := c.distance(gpus)
		largest, mean = append(largest, far), append(mean, middle)
		if len(largest)%30 == 0 {
			c.Say("%d samples: %.2f points in the mean, now %.2f", len(largest), average(largest), far)
		}
		if err := c.Alive(); err != nil {
			return nil, nil, err
		}
	}
	return largest, mean, c.check(ctx)
}

// see takes in what happens to a pod. A pod that is ending uses its GPU until it has gone.
func (c *crowd) see(what watch.EventType, pod *corev1.Pod) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	p := c.parties[pod.Labels[v1alpha1.QueueLabel]]
	switch {
	case p == nil:
	case what == watch.Deleted:
		delete(p.waiting, pod.Name)
		delete(p.running, pod.Name)
	case pod.DeletionTimestamp != nil:
		if !c.leaving[pod.Name] {
			c.evicted[pod.Name] = true
		}
	case pod.Spec.NodeName != "":
		delete(p.waiting, pod.Name)
		p.running[pod.Name] = true
	}
}

// used is how many GPUs queues use, in all.
func (c *crowd) used() (sum int) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, p := range c.parties {
		sum += len(p.running)
	}
	return sum
}

// distance is how far queues are from what they are entitled to, in percentage points of all GPUs: the largest, and the mean of all.
func (c *crowd) distance(gpus int) (largest, mean float64) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, p := range c.parties {
		far := float64(max(len(p.running)-p.entitled, p.entitled-len(p.running))) * 100 / float64(gpus)
		largest, mean = max(largest, far), mean+far/float64(len(c.parties))
	}
	return largest, mean
}

// fill makes pods in proportion to what their queues are entitled to, and waits until all GPUs are in use.
func (c *crowd) fill(ctx context.Context, gpus int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, reclaimLimit, errTimeUp)
	defer cancel()
	var pods []*corev1.Pod
	for i := range 100 {
		for _, p := range c.parties {
			for p.made < p.entitled*(i+1)/100 {
				pods = append(pods, p.next())
			}
		}
	}
	if err := c.makeAll(ctx, pods); err != nil {
		return err
	}
	ticker := time.NewTicker(turnEvery)
	defer ticker.Stop()
	for c.used() < gpus {
		if err := c.turn(ctx, 0); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until the cluster is full, of which %d of %d GPUs are in use: %w", c.used(), gpus, context.Cause(ctx))
		}
		if err := c.Alive(); err != nil {
			return err
		}
	}
	c.Say("all %d GPUs are in use", gpus)
	return nil
}

// churns has pods end and others come until the context ends.
func (c *crowd) churns(ctx context.Context) error {
	ticker := time.NewTicker(turnEvery)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		now := time.Now()
		if err := c.turn(ctx, now.Sub(last)); err != nil && ctx.Err() == nil {
			return err
		}
		last = now
	}
}

// turn ends pods at random, as many as end in so long a time, and fills the lines.
func (c *crowd) turn(ctx context.Context, passed time.Duration) error {
	var ends []string
	var comes []*corev1.Pod
	c.mutex.Lock()
	for _, p := range c.parties {
		for name := range p.running {
			if !c.leaving[name] && !c.evicted[name] && rand.Float64() < passed.Seconds()/life.Seconds() { //nolint:gosec // nobody gains from knowing it
				c.leaving[name] = true
				c.left++
				ends = append(ends, name)
			}
		}
		for len(p.waiting) < line {
			comes = append(comes, p.next())
		}
	}
	c.mutex.Unlock()
	now := int64(0)
	return errors.Join(c.makeAll(ctx, comes), each(ctx, len(ends), func(ctx context.Context, i int) error {
		err := c.client.CoreV1().Pods(namespace).Delete(ctx, ends[i], metav1.DeleteOptions{GracePeriodSeconds: &now})
		if apierrors.IsNotFound(err) {
			return nil // it has ended for others
		}
		return err
	}))
}

func (c *crowd) makeAll(ctx context.Context, pods []*corev1.Pod) error {
	return each(ctx, len(pods), func(ctx context.Context, i int) error {
		_, err := c.client.CoreV1().Pods(namespace).Create(ctx, pods[i], metav1.CreateOptions{})
		return err
	})
}
