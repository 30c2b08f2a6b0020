// Command promises measures what README and design promise, on the simulated driver, and writes
// docs/measurements/promises.json. The simulated driver's own record judges; figures that the libraries and the agent
// report of themselves do not count.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

// options are the flags.
type options struct {
	build, out, only string
	quick            bool
}

// runs is how often a figure is taken.
func (o options) runs() int {
	if o.quick {
		return 1
	}
	return 3
}

func main() {
	var o options
	flag.StringVar(&o.build, "build", "build", "build folder")
	flag.StringVar(&o.out, "out", "docs/measurements/promises.json", "file to merge the figures into")
	flag.StringVar(&o.only, "only", "", "measure only the figures whose ids begin so, such as promise.cap")
	flag.BoolVar(&o.quick, "quick", false, "fewer and shorter runs, to see whether something works; writes nothing")
	flag.Parse()
	if err := measurement.Run(func(ctx context.Context) []measurement.Figure { return figures(ctx, o) }, o.only, o.out, o.quick); err != nil {
		fmt.Fprintln(os.Stderr, "bench promises:", err)
		os.Exit(1)
	}
}

// figures has one line for each promise. Each is measured in a file of its own.
func figures(ctx context.Context, o options) []measurement.Figure {
	of := func(measure func(context.Context, options) ([]measurement.Row, error)) func() ([]measurement.Row, error) {
		return func() ([]measurement.Row, error) { return measure(ctx, o) }
	}
	return []measurement.Figure{
		{IDs: bypassID, Measure: of(measureBypass)},
		{IDs: falseID, Measure: of(measureFalse)},
		{IDs: grantedID, Measure: of(granted)},
		{IDs: "promise.cap_cold_points", Measure: of(capCold)},
		{IDs: "promise.dependent_s", Measure: of(dependent)},
		{IDs: "promise.cold_ratio", Measure: of(coldRatio)},
		{IDs: "promise.lazy_ratio", Measure: of(lazyRatio)},
		{IDs: agentCost, Measure: of(measureAgentCost)},
		{IDs: deadHandles, Measure: of(measureHandles)},
		{IDs: "promise.fd_bytes", Measure: of(descriptors)},
		{IDs: costPercent, Measure: of(measureCost)},
	}
}

// pause lets time pass and reports whether all of it did: not if ctx is done before.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// row is a row of one case; its command takes the figure alone.
func row(id, name, unit string, goal float64, runs []float64) measurement.Row {
	r := measurement.Of(id, unit, goal, measurement.Lower, "make bench-promises ONLY="+id, runs...)
	r.Case = name
	return r
}
