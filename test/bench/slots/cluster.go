package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// cluster is one whose nodes are objects alone, and whose pods are followed.
type cluster struct {
	options
	*plane.Plane

	client     kubernetes.Interface
	components string
	fleet      []machine
	record     *record
	rounds     int
	asks       tls.Certificate // by which the scheduler asks the extender
	following  sync.WaitGroup
	unfollow   context.CancelFunc
}

// open starts a control plane with nodes, whose pods are followed, and nothing that would place any.
func open(ctx context.Context, o options, fleet []machine) (*cluster, error) {
	components, err := plane.ComponentsOf(o.root, o.minor)
	if err != nil {
		return nil, err
	}
	p, err := plane.Start(ctx, plane.Options{Components: components, Log: o.Say})
	if err != nil {
		return nil, err
	}
	c := &cluster{options: o, Plane: p, client: p.Client(), components: components, fleet: fleet, record: newRecord(fleet)}
	following, cancel := context.WithCancel(ctx)
	c.unfollow = cancel
	c.following.Go(func() { c.record.follow(following, c.client) })
	client, err := writeClient(c.Dir())
	if err == nil {
		c.asks = client
		err = c.populate(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// close ends everything.
func (c *cluster) close() error {
	c.unfollow()
	err := c.Stop()
	c.following.Wait()
	return err
}

// file is one in the cluster's folder, which ends with it.
func (c *cluster) file(name string) string { return filepath.Join(c.Dir(), name) }

// populate makes namespaces and nodes.
func (c *cluster) populate(ctx context.Context) error {
	for _, name := range []string{namespace, system} {
		made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := c.client.CoreV1().Namespaces().Create(ctx, made, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make namespace %s: %w", name, err)
		}
	}
	err := each(ctx, len(c.fleet), func(ctx context.Context, i int) error { return c.addNode(ctx, &c.fleet[i]) })
	if err != nil {
		return fmt.Errorf("make nodes: %w", err)
	}
	c.Say("made %d nodes", len(c.fleet))
	return nil
}

func (c *cluster) addNode(ctx context.Context, m *machine) error {
	n, err := m.node()
	if err != nil {
		return err
	}
	_, err = c.client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
	return err
}

// fill binds n pods of a kind, round the nodes and then round the GPUs of each, as the extender would write them. Nothing may
// place pods by then.
func (c *cluster) fill(ctx context.Context, k kind, n int) error {
	pods := c.client.CoreV1().Pods(namespace)
	err := each(ctx, n, func(ctx context.Context, i int) error {
		made, err := pods.Create(ctx, k.one("filled", i), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		node := &c.fleet[i%len(c.fleet)]
		binding, err := bindingOf(made, node, i/len(c.fleet)%len(node.gpus))
		if err != nil {
			return err
		}
		return pods.Bind(ctx, binding, metav1.CreateOptions{})
	})
	if err == nil {
		err = c.record.when(ctx, func() bool { return c.record.bound == n })
	}
	if err := errors.Join(err, c.record.wrong()); err != nil {
		return fmt.Errorf("fill the cluster: %w", err)
	}
	c.Say("%d pods are bound", n)
	return nil
}

// outcome is what became of the pods of a round.
type outcome struct {
	// bound are pods with a node, waiting those for which the scheduler found none, all how many were made.
	bound, waiting, all int
	// took is the time from the first pod's creation until the last one was bound, or until time was up.
	took  time.Duration
	first time.Time // when a pod was bound
	// spent are the processor times that programs took meanwhile, by name.
	spent map[string]time.Duration
}

// rate is in pods per second.
func (o outcome) rate() float64 { return float64(o.bound) / o.took.Seconds() }

// costs tells the processor time for each pod, in ms.
func (o outcome) costs() string {
	each := func(name string) float64 { return o.spent[name].Seconds() * 1000 / float64(max(o.bound, 1)) }
	return fmt.Sprintf("scheduler %.1f ms, extender %.1f ms, API server %.1f ms", each(schedulerProgram), each(extenderProgram), each(plane.APIServer))
}

// roundLimit bounds a round: what is bound by then counts.
const roundLimit = 3 * time.Minute

// errTimeUp ends a round that takes too long.
var errTimeUp = errors.New("time is up")

// round makes pods and waits until all of them are bound, or, where some may wait, until they are or the scheduler has found no
// node for them. Pods are made while others are placed, as in a cluster. That time is up is no error.
func (c *cluster) round(ctx context.Context, mayWait bool, n int, of func(round string, i int) *corev1.Pod) (outcome, error) {
	c.rounds++
	round := fmt.Sprintf("%d", c.rounds)
	t := c.record.begin(round)
	before, err := c.processorTimes()
	if err != nil {
		return outcome{}, err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, roundLimit, errTimeUp)
	defer cancel()
	begun := time.Now()
	err = each(bounded, n, func(ctx context.Context, i int) error {
		_, err := c.client.CoreV1().Pods(namespace).Create(ctx, of(round, i), metav1.CreateOptions{})
		return err
	})
	if err == nil {
		err = c.record.when(bounded, func() bool {
			return len(t.bound) == n || mayWait && len(t.bound)+len(t.waiting) == n
		})
	}
	took := time.Since(begun)
	if err != nil && !errors.Is(err, errTimeUp) {
		return outcome{}, err
	}
	now := c.record.end(round)
	o := outcome{bound: len(now.bound), waiting: len(now.waiting), all: n, took: took, first: now.first, spent: map[string]time.Duration{}}
	if err == nil && o.bound > 0 {
		o.took = now.last.Sub(begun)
	}
	after, err := c.processorTimes()
	for name := range after {
		o.spent[name] = after[name] - before[name]
	}
	return o, errors.Join(err, c.record.wrong(), c.Alive())
}

// processorTimes are those of the programs so far.
func (c *cluster) processorTimes() (map[string]time.Duration, error) {
	times := map[string]time.Duration{}
	for _, name := range []string{schedulerProgram, extenderProgram, plane.APIServer} {
		process := c.Process(name)
		if process == nil || process.Alive() != nil {
			continue // it was killed
		}
		taken, err := process.Processor()
		if err != nil {
			return nil, err
		}
		times[name] = taken
	}
	return times, nil
}

// clear removes all pods of rounds and waits until they are gone: every round begins alike.
func (c *cluster) clear(ctx context.Context) error {
	now := int64(0)
	err := c.client.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{LabelSelector: roundLabel + "!=filled"})
	if err != nil {
		return fmt.Errorf("remove pods: %w", err)
	}
	return c.record.when(ctx, func() bool {
		for _, pod := range c.record.pods {
			if pod.Labels[roundLabel] != "filled" {
				return false
			}
		}
		return true
	})
}
