package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/racks"
)

const (
	gangTopology = "sched.gang_topology"
	verdictTime  = "sched.verdict_ms"
	planTime     = "sched.gang_plan_ms"
	// rackCount is how many racks the nodes are in, and clusters how many clusters are drawn for each figure.
	rackCount = 32
	clusters  = 5
	// triedGangs is how many gangs are planned on each cluster.
	triedGangs = 100
)

// threadTime is the processor time of this thread: what a plan costs does not depend on what else the machine runs.
func threadTime() time.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return time.Time{}
	}
	return time.Unix(ts.Unix())
}

// p99 is in milliseconds.
func p99(times []time.Duration) float64 {
	slices.Sort(times)
	return times[len(times)*99/100].Seconds() * 1000
}

// measureTopology plans gangs of 8 to 64 members, and compares with an exhaustive search for a rack that has room.
func measureTopology(o options) ([]measurement.Row, error) {
	nodes := o.NodesOr(stockNodes)
	var parts []float64
	room := 0
	for seed := range clusters {
		random := rand.New(rand.NewPCG(uint64(seed), 32))
		c, err := racks.Draw(random, nodes, rackCount, 60)
		if err != nil {
			return nil, err
		}
		r := racks.Result{Clock: threadTime}
		for range triedGangs {
			g, members := racks.Gang(random, 8+random.IntN(57))
			if err := r.Try(c, g, members); err != nil {
				return nil, err
			}
		}
		parts = append(parts, float64(r.Together)*100/float64(max(1, r.Room)))
		room += r.Room
	}
	row := measurement.Of(gangTopology, "%", 99, measurement.Higher, "make bench-sched ONLY="+gangTopology, parts...)
	row.Case = fmt.Sprintf("gangs of 8 to 64, %d nodes in %d racks, 60 %% in use", nodes, rackCount)
	row.Note = fmt.Sprintf("of %d gangs for which exhaustive search finds a rack with room, those planned in one rack", room)
	return []measurement.Row{row}, nil
}

// measurePlans plans gangs of 512 members, and pods, until enough of each fit nowhere.
func measurePlans(o options) ([]measurement.Row, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	nodes := o.NodesOr(stockNodes)
	size := min(gangSize, nodes)
	var placed, refused, alone []float64
	for seed := range clusters {
		random := rand.New(rand.NewPCG(uint64(seed), 512))
		c, err := racks.Draw(random, nodes, rackCount, 60)
		if err != nil {
			return nil, err
		}
		r := racks.Result{Clock: threadTime}
		for range triedGangs {
			g, members := racks.Large(random, size)
			_, _ = r.Plan(c, g, members) // the result notes how long it took
		}
		if c, err = racks.Draw(random, nodes, rackCount, 100); err != nil {
			return nil, err
		}
		single, err := refusals(c, random)
		if err != nil {
			return nil, err
		}
		if len(r.Placed) == 0 || len(r.Refused) == 0 || len(single) == 0 {
			return nil, fmt.Errorf("plan gangs: %d fit, %d do not, and %d pods do not", len(r.Placed), len(r.Refused), len(single))
		}
		placed, refused, alone = append(placed, p99(r.Placed)), append(refused, p99(r.Refused)), append(alone, p99(single))
	}
	on, note := fmt.Sprintf("%d nodes", nodes), "processor time of the planning thread, p99; runs are clusters"
	return []measurement.Row{
		target.Less(planTime, fmt.Sprintf("%s, gangs of %d", on, size), "ms", 500, placed, note),
		target.Less(verdictTime, fmt.Sprintf("%s, gangs of %d", on, size), "ms", 100, refused, note),
		target.Less(verdictTime, on+", pods", "ms", 100, alone, note),
	}, nil
}

// refusals are how long it took to find out of pods that they fit nowhere, and why.
func refusals(c *racks.Cluster, random *rand.Rand) (times []time.Duration, err error) {
	for range triedGangs {
		p := racks.Single(random)
		begun := threadTime()
		choices, err := c.Inventory.PodChoices(&p, nil)
		if err != nil {
			return nil, err
		}
		if _, fits := choices.Next(); fits {
			continue
		}
		if choices.Refusal().Error() == "" {
			return nil, errors.New("refuse a pod: there is no reason")
		}
		times = append(times, threadTime().Sub(begun))
	}
	return times, nil
}
