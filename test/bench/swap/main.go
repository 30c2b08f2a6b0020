// Command swap measures shares with more memory than their GPU has, and shares that sleep, on the simulated driver, and writes
// docs/measurements/swap.json. The law of turns is taken together with the simulated driver's schedule on a virtual clock; all
// else is in real time, on a small machine with a fast link. What is compared runs in one run, taken in turn. The simulated
// driver's own record judges bytes and GPU time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

// options are the flags.
type options struct {
	build, out, only string
	quick            bool
}

func main() {
	var o options
	flag.StringVar(&o.build, "build", "build", "build folder")
	flag.StringVar(&o.out, "out", "docs/measurements/swap.json", "file to merge the figures into")
	flag.StringVar(&o.only, "only", "", "measure only the figures whose ids begin so, such as swap.turns")
	flag.BoolVar(&o.quick, "quick", false, "fewer and shorter runs, to see whether something works; writes nothing")
	flag.Parse()
	build, err := filepath.Abs(o.build)
	if o.build = build; err == nil {
		err = measurement.Run(func(ctx context.Context) []measurement.Figure { return figures(ctx, o) }, o.only, o.out, o.quick)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench swap:", err)
		os.Exit(1)
	}
}

// figures has one line for each file of this package.
func figures(ctx context.Context, o options) []measurement.Figure {
	virtual := func(measure func(context.Context, options) ([]measurement.Row, error)) func() ([]measurement.Row, error) {
		return func() ([]measurement.Row, error) { return measure(ctx, o) }
	}
	real := func(hostMemory string, measure func(*bench) ([]measurement.Row, error)) func() ([]measurement.Row, error) {
		return func() ([]measurement.Row, error) { return onMachine(ctx, o, hostMemory, measure) }
	}
	return []measurement.Figure{
		{IDs: modelID, Measure: virtual(published)},
		{IDs: instructionsID, Measure: virtual(instructions)},
		{IDs: fairID, Measure: virtual(virtualFair)},
		{IDs: turnsID, Measure: func() ([]measurement.Row, error) {
			rows, err := virtualTurns(ctx, o)
			if err != nil {
				return nil, err
			}
			more, err := onMachine(ctx, o, budget, (*bench).turns)
			return append(rows, more...), err
		}},
		{IDs: fitID, Measure: real(budget, (*bench).fit)},
		{IDs: burstID, Measure: real(budget, (*bench).bursts)},
		{IDs: onlineID, Measure: real(budget, (*bench).online)},
		{IDs: guaranteedID, Measure: real(budget, (*bench).guaranteed)},
		{IDs: lostID + " " + addedID, Measure: virtual(suspended)},
		{IDs: hostID, Measure: real(tight, (*bench).host)},
	}
}

// times is how often something is done: so many times, or twice to see whether it works.
func (o options) times(n int) int {
	if o.quick {
		return min(n, 2)
	}
	return n
}

// row is a row of one case; its command takes the figure alone.
func row(id, name, unit string, goal float64, better measurement.Direction, runs []float64) measurement.Row {
	r := measurement.Of(id, unit, goal, better, "make bench-swap ONLY="+id, runs...)
	r.Case = name
	return r
}

// errNone says that there is nothing of which a figure could be made.
var errNone = errors.New("nothing was measured")

// middle is the median of numbers in no order.
func middle(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}
