package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/alloc/replay"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

// threadTime is the processor time of this thread: what a decision costs does
// not depend on what else the machine runs.
func threadTime() time.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return time.Time{}
	}
	return time.Unix(ts.Unix())
}

// pace is the cost of the decisions of one replay.
type pace struct {
	perSecond, median, p99, mallocs float64
}

func measure(t *replay.Trace, seed int64, until int) (pace, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var times []time.Duration
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r, err := t.Run(context.Background(), replay.Options{
		Policy: alloc.DefaultPolicy, Seed: seed, Until: until, Clock: threadTime,
		Decided: func(took time.Duration) { times = append(times, took) },
	})
	if err != nil {
		return pace{}, err
	}
	runtime.ReadMemStats(&after)
	slices.Sort(times)
	micro := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	return pace{
		perSecond: r.PerSecond, median: micro(times[len(times)/2]), p99: micro(times[len(times)*99/100]),
		mallocs: float64(after.Mallocs-before.Mallocs) / float64(len(times)),
	}, nil
}

// largeNodes are as in place.decisions_per_s_15k: 15,000 nodes with 8 GPUs.
func largeNodes() []alloc.Node {
	nodes := make([]alloc.Node, 15_000)
	for i := range nodes {
		n := &nodes[i]
		*n = alloc.Node{Name: fmt.Sprintf("node-%05d", i), CPU: 128_000, Memory: 1 << 40}
		for j := range 8 {
			n.GPUs = append(n.GPUs, alloc.GPU{UUID: fmt.Sprintf("%s/%d", n.Name, j), Index: j, Model: "G2", Capacity: 1000})
		}
	}
	return nodes
}

// speed is place.decisions_per_s and its like, one decision after the other.
func (b *bench) speed() ([]measurement.Row, error) {
	t, err := b.trace("default")
	if err != nil {
		return nil, err
	}
	var small, large []pace
	for i := range min(b.seeds, 5) {
		p, err := measure(t, firstSeed+int64(i), 130)
		if err != nil {
			return nil, err
		}
		small = append(small, p)
	}
	big := &replay.Trace{Nodes: largeNodes(), Pods: t.Pods}
	for i := range min(b.seeds, 3) {
		p, err := measure(big, firstSeed+int64(i), 90)
		if err != nil {
			return nil, err
		}
		large = append(large, p)
	}
	note := "processor time of the deciding thread, model updates included"
	row := func(id, unit, name string, goal float64, better measurement.Direction, of []pace, value func(pace) float64) measurement.Row {
		var runs []float64
		for _, p := range of {
			runs = append(runs, value(p))
		}
		r := measurement.Of(id, unit, goal, better, command, runs...)
		r.Case, r.Note = name, note
		return r
	}
	perSecond := func(p pace) float64 { return p.perSecond }
	middle := replay.Median([]float64{small[0].median, small[len(small)/2].median, small[len(small)-1].median})
	return []measurement.Row{
		row("place.decisions_per_s", "/s", "1,213 nodes", 20_000, measurement.Higher, small, perSecond),
		row("place.decisions_per_s", "µs", "1,213 nodes, p99", 500, measurement.Lower, small, func(p pace) float64 { return p.p99 }),
		row("place.decisions_per_s", "/decision", "1,213 nodes, allocations of memory", 10, measurement.Lower, small, func(p pace) float64 { return p.mallocs }),
		row("place.decisions_per_s_15k", "/s", "15,000 nodes of 8 GPUs", 5_000, measurement.Higher, large, perSecond),
		row("place.decisions_per_s_15k", "×", "median cost against 1,213 nodes", 3.5, measurement.Lower, large, func(p pace) float64 { return p.median / middle }),
	}, nil
}

// placeHalves puts 16 halves on 8 GPUs at once and returns the most on one, or
// an error when one is refused.
func placeHalves() (float64, error) {
	var gpus []alloc.GPU
	for i := range 8 {
		gpus = append(gpus, alloc.GPU{UUID: fmt.Sprint(i), Index: i, Capacity: 80 << 30})
	}
	policy, err := alloc.PolicyNamed(alloc.DefaultPolicy)
	if err != nil {
		return 0, err
	}
	inventory, err := alloc.NewInventory([]alloc.Node{{GPUs: gpus}}, policy)
	if err != nil {
		return 0, err
	}
	placed := make([]int, len(gpus))
	for range 16 {
		a, err := alloc.Search(inventory, alloc.Request{Count: 1, Memory: v1alpha1.Percent(50), Cores: 50})
		if err != nil {
			return 0, err
		}
		if err := inventory.Reserve(a); err != nil {
			return 0, err
		}
		placed[a.Shares[0].GPU]++
	}
	return float64(slices.Max(placed)), nil
}
