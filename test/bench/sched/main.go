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

// target is what takes these figures.
const target measurement.Target = "bench-sched"

// options are the flags.
type options struct {
	measurement.Scale
	root, build, out, mig, sched, queues, only, profile, bare string
	churn                                                     time.Duration
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
	flag.DurationVar(&o.churn, "churn", wholeChurn, "for how long pods come and go for "+fairness+"; writes nothing where it is shorter than by default")
	o.AddFlags(flag.CommandLine)
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
	if !o.Whole() || o.churn < wholeChurn {
		o.out, o.mig, o.sched, o.queues = "", "", "", ""
	}
	if o.Quick {
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
