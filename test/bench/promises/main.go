// Command promises measures what README and design promise, on the simulated driver, and writes
// docs/measurements/promises.json. The simulated driver's own record judges; figures that the libraries and the agent
// report of themselves do not count.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
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
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench promises:", err)
		os.Exit(1)
	}
}

// figure measures the rows of one promise.
type figure struct {
	id      string
	measure func(context.Context, options) ([]measurement.Row, error)
}

// figures has one line for each promise. Each is measured in a file of its own.
func figures() []figure {
	return []figure{
		{bypassID, measureBypass},
		{falseID, measureFalse},
		{grantedID, granted},
		{"promise.cap_cold_points", capCold},
		{"promise.dependent_s", dependent},
		{"promise.cold_ratio", coldRatio},
		{"promise.lazy_ratio", lazyRatio},
		{agentCost, measureAgentCost},
		{deadHandles, measureHandles},
		{"promise.fd_bytes", descriptors},
		{costPercent, measureCost},
	}
}

// run ends what it started also when it is interrupted.
func run(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, f := range figures() {
		if !measurement.Wanted(f.id, o.only) {
			continue
		}
		begin := time.Now()
		rows, err := f.measure(ctx, o)
		if err != nil {
			return fmt.Errorf("measure %s: %w", f.id, err)
		}
		for _, row := range rows {
			fmt.Printf("%-30s %-40s %10.3f %-7s goal %v reached %v (worst %.3f of %d)\n",
				row.ID, row.Case, row.Value, row.Unit, *row.Goal, row.Reached(), row.Worst, row.Runs)
		}
		fmt.Printf("took %s\n", time.Since(begin).Round(time.Second))
		if o.quick {
			continue
		}
		if err := measurement.Merge(o.out, rows); err != nil {
			return err
		}
	}
	return nil
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
