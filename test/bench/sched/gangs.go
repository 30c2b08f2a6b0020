package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	gangTime     = "sched.gang_s"
	verdictOnPod = "sched.verdict_on_pod_s"
	// gangSize is how many members the gangs have.
	gangSize = 512
)

// measureGangs places gangs, and asks for one that fits nowhere.
func measureGangs(ctx context.Context, o options) (rows []measurement.Row, err error) {
	b, err := openOurs(ctx, o, o.NodesOr(stockNodes), true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	shares, err := namedPods("share", smallShare)
	if err != nil {
		return nil, err
	}
	if err := b.warm(ctx, shares); err != nil {
		return nil, err
	}
	var placed, refused []float64
	for run := range b.Rounds() {
		took, err := b.gang(ctx, shares, fmt.Sprintf("fits-%d", run), b.Few(gangSize), false)
		if err != nil {
			return nil, err
		}
		placed = append(placed, took.Seconds())
	}
	whole, err := namedPods("whole", map[corev1.ResourceName]string{v1alpha1.ResourceGPU: "8"})
	if err != nil {
		return nil, err
	}
	// One node more than there are.
	for run := range b.Rounds() {
		took, err := b.gang(ctx, whole, fmt.Sprintf("fits-not-%d", run), b.nodes+1, true)
		if err != nil {
			return nil, err
		}
		refused = append(refused, took.Seconds())
	}
	on := fmt.Sprintf("%d nodes", b.nodes)
	return []measurement.Row{
		target.Less(gangTime, fmt.Sprintf("%s, %d shares", on, b.Few(gangSize)), "s", 6, placed, "from the creation of the last member until all are bound"),
		target.Less(verdictOnPod, fmt.Sprintf("%s, %d members of 8 whole GPUs each", on, b.nodes+1), "s", 1, refused,
			"from the creation of the last member until a member says why it waits; no member is bound"),
	}, nil
}

// gang makes the members of a gang and returns the time from the creation of the last one until all are bound, or until
// one says why it waits.
func (b *bench) gang(ctx context.Context, k kind, name string, size int, waits bool) (time.Duration, error) {
	k.name = name
	k.annotations = map[string]string{v1alpha1.GangAnnotation: name, v1alpha1.GangSizeAnnotation: strconv.Itoa(size)}
	m := &gangTimes{size: size, made: map[string]bool{}}
	t := newTally()
	t.also = m.see
	o, err := b.roundWith(ctx, t, size, roundLimit, func(bound, _ int) bool { return bound == size || waits && m.told() }, k)
	if err != nil {
		return 0, err
	}
	if waits && (o.bound > 0 || !m.told()) || !waits && o.bound != size {
		return 0, fmt.Errorf("place gang %s: of %d members %d are bound and %d wait", name, size, o.bound, o.waiting)
	}
	if err := b.check(ctx); err != nil {
		return 0, err
	}
	took := m.bound.Sub(m.last)
	if waits {
		took = m.refused.Sub(m.last)
	}
	b.Say("gang %s of %d: %.2f s", name, size, took.Seconds())
	return took, b.clear(ctx)
}

// gangTimes has when the last member of a gang was made, when the last was bound, and when one first said why it waits
// though all are there.
type gangTimes struct {
	size                 int
	mutex                sync.Mutex
	made                 map[string]bool
	last, bound, refused time.Time
}

func (g *gangTimes) see(pod *corev1.Pod) {
	now := time.Now()
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if !g.made[pod.Name] {
		g.made[pod.Name], g.last = true, now
	}
	switch {
	case pod.Spec.NodeName != "":
		g.bound = now
	case len(g.made) == g.size && g.refused.IsZero() && unschedulable(pod) && !strings.Contains(reasonOf(pod), "waits for members"):
		g.refused = now
	}
}

func (g *gangTimes) told() bool {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return !g.refused.IsZero()
}

// reasonOf is what a pod says of why it waits.
func reasonOf(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled {
			return condition.Message
		}
	}
	return ""
}
