// Command sched measures what Divvy's slices cost the scheduler that comes with Kubernetes, and what a large cluster
// costs Divvy's webhook, and how quickly and well Divvy's scheduler places pods. It writes docs/measurements/cluster.json,
// mig.json for MIG instances, sched.json for Divvy's scheduler and queues.json for its queues. The control plane is real and runs without root; its
// nodes are objects alone, with the slices that the agent publishes for a simulated machine of eight GPUs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

// options are the flags.
type options struct {
	root, build, out, mig, sched, queues, only, profile, bare string
	nodes                                                     int
	churn                                                     time.Duration
	quick, verbose                                            bool
}

// longest bounds the whole of it, on a busy machine.
const longest = 40 * time.Minute

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "the checkout")
	flag.StringVar(&o.build, "build", "build", "build folder")
	flag.StringVar(&o.out, "out", "docs/measurements/cluster.json", "file to merge the figures into")
	flag.StringVar(&o.mig, "mig", "docs/measurements/mig.json", "file to merge the figures of MIG instances into")
	flag.StringVar(&o.sched, "sched", "docs/measurements/sched.json", "file to merge the figures of Divvy's scheduler into")
	flag.StringVar(&o.queues, "queues", "docs/measurements/queues.json", "file to merge the figures of queues into")
	flag.StringVar(&o.only, "only", "", "measure only the figures whose ids begin so, such as cluster.stock; those of queues are measured only where this begins with queue")
	flag.StringVar(&o.profile, "profile", "", "file for a profile of the scheduler's processor time while it places pods with claims")
	flag.IntVar(&o.nodes, "nodes", 0, "another number of nodes than each figure's own; writes nothing")
	flag.DurationVar(&o.churn, "churn", wholeChurn, "for how long pods come and go for "+fairness+"; writes nothing where it is shorter than by default")
	flag.BoolVar(&o.quick, "quick", false, "50 nodes and one short round, to see whether something works; writes nothing")
	flag.BoolVar(&o.verbose, "v", false, "tell what happens")
	flag.StringVar(&o.bare, "bare", "", "answer bare round trips at this address, and do nothing else")
	flag.Parse()
	do := run
	if o.bare != "" {
		do = func(o options) error { return serveBare(o.bare) }
	}
	if err := do(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench sched:", err)
		os.Exit(1)
	}
}

// figures has one line for each id. Each is measured in a file of its own, on a control plane of its own where it needs
// one.
func figures(ctx context.Context, o options) []measurement.Figure {
	of := func(measure func(context.Context, options) ([]measurement.Row, error)) func() ([]measurement.Row, error) {
		return func() ([]measurement.Row, error) { return measure(ctx, o) }
	}
	return []measurement.Figure{
		{IDs: stockRate, Measure: of(measureStock)},
		{IDs: otherRatio, Measure: of(measureOther)},
		{IDs: reviewTime + " " + webhookMemory, Measure: of(measureReviews)},
		{IDs: foreignQuota, Measure: of(measureQuota)},
		{IDs: treatedRight, Measure: of(measureExamples)},
	}
}

// run ends what it started also when it is interrupted.
func run(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	if o.quick || o.nodes > 0 || o.churn < wholeChurn {
		o.out, o.mig, o.sched, o.queues = "", "", "", ""
	}
	if o.quick {
		o.churn = min(o.churn, quickChurn)
	}
	type area struct {
		out     string
		figures []measurement.Figure
	}
	areas := []area{{o.out, figures(ctx, o)}, {o.mig, migFigures(ctx, o)}, {o.sched, schedFigures(ctx, o)}}
	if strings.HasPrefix(o.only, "queue") { // they are another target's
		areas = []area{{o.queues, queueFigures(ctx, o)}}
	}
	none := 0
	for _, area := range areas {
		err := measurement.Take(area.figures, o.only, area.out, os.Stdout)
		if errors.Is(err, measurement.ErrNone) && none < len(areas)-1 {
			none++
		} else if err != nil {
			return err
		}
	}
	return nil
}

// nodesOr is how many nodes a figure has.
func (o options) nodesOr(own int) int {
	switch {
	case o.nodes > 0:
		return o.nodes
	case o.quick:
		return min(own, 50)
	}
	return own
}

// runs is how often a figure is taken.
func (o options) runs() int {
	if o.quick {
		return 1
	}
	return 5
}

// few is how many pods a round has: fewer where it is only to be seen whether something works.
func (o options) few(own int) int {
	if o.quick {
		return own / 10
	}
	return own
}

func (o options) say(format string, args ...any) {
	if o.verbose {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}

// rowOf is a row of one case, of which more is better. A goal of 0 stands for none.
func rowOf(id, name, unit string, goal float64, runs []float64, note string) measurement.Row {
	r := measurement.Of(id, unit, goal, measurement.Higher, "make bench-sched ONLY="+id, runs...)
	r.Case, r.Note = name, note
	if goal == 0 {
		r.Goal = nil
	}
	return r
}

// boundOf is a row of one case, of which less is better.
func boundOf(id, name, unit string, goal float64, runs []float64, note string) measurement.Row {
	r := measurement.Of(id, unit, goal, measurement.Lower, "make bench-sched ONLY="+id, runs...)
	r.Case, r.Note = name, note
	return r
}
