package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	freedGoal = 2 // s
	// benchDir is of the node; pods of the bench have it at /bench.
	benchDir = "/var/lib/divvy-bench"
)

// settled is above the longest pause that the scheduler makes before it tries a pod again (podMaxBackoffSeconds: 10 s).
const settled = 12 * time.Second

// freed measures how soon a pod that waits for a GPU runs once the pod that has all of them has ended: from the last
// moment of the one's container, written by itself, to the first of the other's, and to the moment at which the API
// calls the pod running. All are times since the machine's start.
func (b *bench) freed(ctx context.Context) ([]measurement.Row, error) {
	dir := b.cluster.Nodes[0].Path(benchDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a folder of the node: %w", err)
	}
	soon, err := b.free(ctx, dir, "soon", b.plan.turns, 0)
	if err != nil {
		return nil, err
	}
	late, err := b.free(ctx, dir, "late", (b.plan.turns+1)/2, settled)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(soon, late)
	own, err := b.ownTimes(ctx, all)
	if err != nil {
		return nil, err
	}
	seconds := func(of []turn, f func(turn) float64) []float64 {
		var all []float64
		for _, t := range of {
			all = append(all, f(t))
		}
		return all
	}
	started := func(t turn) float64 { return t.began - t.ended }
	running := func(t turn) float64 { return t.running - t.ended }
	return []measurement.Row{
		row("pod is Running", "from the last container's exit; as a watch of the API sees it", freedGoal, seconds(soon, running)),
		row("container has started", "from the last container's exit to the other's first instruction, by the machine's clock of 10 ms", freedGoal, seconds(soon, started)),
		row("pod is Running that waited for 12 s", "longer than the scheduler's longest pause; the exits fall on all parts of a second, in which the kubelet looks once at its containers", freedGoal, seconds(late, running)),
		row("part 1: the kubelet tells of the end", "from the exit: up to 1 s until it looks at its containers, 1 s until it looks again, and the end of the sandbox", 0, seconds(all, func(t turn) float64 { return t.told - t.ended })),
		row("part 2: the other pod is bound", "controller manager and scheduler, with five writes to the API", 0, seconds(all, func(t turn) float64 { return t.bound - t.told })),
		row("part 3: it is Running", "the kubelet: volumes, for which it looks each 0.3 s, sandbox and container", 0, seconds(all, func(t turn) float64 { return t.running - t.bound })),
		row("of these in the agent", "letting go of the one claim, in part 1, and preparing the other, in part 3", 0, own),
	}, nil
}

// row is a figure without a goal where that is 0.
func row(name, note string, goal float64, runs []float64) measurement.Row {
	r := measurement.Of("k8s.freed_to_running_s", "s", goal, measurement.Lower, command, runs...)
	r.Case, r.Note = name, note
	if goal == 0 {
		r.Goal = nil
	}
	return r
}

// free lets one pod end and another begin, some times. The other has waited so long then, and a little longer each time,
// a second at last.
func (b *bench) free(ctx context.Context, dir, kind string, times int, waited time.Duration) ([]turn, error) {
	var turns []turn
	for i := range times {
		b.say("free the node for a pod that waits, %s, %d of %d", kind, i+1, times)
		pause := waited
		if pause > 0 {
			pause += time.Duration(i) * time.Second / time.Duration(times)
		}
		t := turn{owner: fmt.Sprintf("owner-%s-%d", kind, i), waiter: fmt.Sprintf("waiter-%s-%d", kind, i)}
		if err := b.play(ctx, dir, &t, pause); err != nil {
			return nil, err
		}
		turns = append(turns, t)
		if err := b.removePods(ctx); err != nil {
			return nil, err
		}
	}
	return turns, nil
}

// unschedulable reports whether the scheduler has said that there is no room.
func unschedulable(p *corev1.Pod) (bool, error) {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
			return true, nil
		}
	}
	if p.Status.Phase != corev1.PodPending {
		return false, fmt.Errorf("it is %s where nothing is free", p.Status.Phase)
	}
	return false, nil
}
