// Command slots measures mode slots with Divvy's extender beside the scheduler of Kubernetes 1.35: how long one question of the
// scheduler takes, how quickly pods with a share are bound beside plain ones, how well a public trace is packed, how long the
// extender is away when it starts anew, and whether anything is given twice while its parts are killed. It writes
// docs/measurements/slots.json. API server, scheduler and extender are the real programs and run without root; nodes are objects
// alone, with the annotations that agents write.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

// target is what takes these figures.
const target measurement.Target = "bench-slots"

// options are the flags.
type options struct {
	measurement.Scale
	root, build, out, only, minor, bare string
	binds                               int
	seed                                uint64
}

// longest bounds the whole of it, on a busy machine.
const longest = 3 * time.Hour

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "the checkout")
	flag.StringVar(&o.build, "build", "build", "build folder")
	flag.StringVar(&o.out, "out", "docs/measurements/slots.json", "file to merge the figures into")
	flag.StringVar(&o.only, "only", "", "measure only the figures whose ids begin so, such as slots.filter_ms")
	flag.StringVar(&o.minor, "kubernetes", "v1.35", "minor version of Kubernetes")
	flag.IntVar(&o.binds, "binds", wholeBinds, "how many pods "+twice+" binds; writes nothing where it is fewer than by default")
	flag.Uint64Var(&o.seed, "seed", 0, "seed of the faults of "+twice+", 0 for a new one, or the only one of the arrivals of "+realTrace+", which then writes nothing")
	o.AddFlags(flag.CommandLine)
	flag.StringVar(&o.bare, "bare", "", "answer bare round trips at this address, and do nothing else")
	flag.Parse()
	do := run
	if o.bare != "" {
		do = func(o options) error { return serveBare(o.bare) }
	}
	if err := do(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench slots:", err)
		os.Exit(1)
	}
}

// figures has one line for each id. Each is measured on control planes of its own.
func figures(ctx context.Context, o options) []measurement.Figure {
	of := func(measure func(context.Context, options) ([]measurement.Row, error)) func() ([]measurement.Row, error) {
		return func() ([]measurement.Row, error) { return measure(ctx, o) }
	}
	return []measurement.Figure{
		{IDs: filterTime, Measure: of(measureFilter)},
		{IDs: boundRate, Measure: of(measureRates)},
		{IDs: restartTime, Measure: of(measureRestart)},
		{IDs: realTrace, Measure: of(measureTrace)},
		{IDs: twice, Measure: of(measureTwice)},
	}
}

// run ends what it started also when it is interrupted.
func run(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, longest, errors.New("all of it took too long"))
	defer cancel()
	if !o.Whole() || o.binds < wholeBinds || o.only == realTrace && o.seed != 0 {
		o.out = ""
	}
	return measurement.Take(figures(ctx, o), o.only, o.out, os.Stdout)
}
