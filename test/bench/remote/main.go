// Command remote measures what a program pays that is kept away from the driver, and what it is kept from, on the simulated
// driver, and writes docs/measurements/remote.json. Each time of backend remote stands beside that of a local share in the same
// run, taken in turn. The simulated driver's own record judges memory and GPU time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

const machine = "a100-80g" // its driver calls cost nothing

// options are the flags.
type options struct {
	build, out, only string
	quick            bool
	// bare and dir are of a side of the bare relay.
	bare, dir string
}

// bench runs programs in shares of one simulated machine.
type bench struct {
	options
	*simulated.Machine
}

func main() {
	var o options
	flag.StringVar(&o.build, "build", "build", "build folder")
	flag.StringVar(&o.out, "out", "docs/measurements/remote.json", "file to merge the figures into")
	flag.StringVar(&o.only, "only", "", "measure only the figures whose ids begin so, such as remote.step")
	flag.BoolVar(&o.quick, "quick", false, "fewer and shorter runs, to see whether something works; writes nothing")
	flag.StringVar(&o.bare, "bare", "", "be a side of the bare relay: far, or near with this address of the far one")
	flag.StringVar(&o.dir, "dir", "", "directory with the files of the bare relay's sides")
	flag.Parse()
	if o.bare != "" {
		fmt.Fprintln(os.Stderr, "bench remote:", bareSide(o.bare, o.dir))
		os.Exit(1)
	}
	err := measurement.Run(func(ctx context.Context) []measurement.Figure { return figures(ctx, o) }, o.only, o.out, o.quick)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench remote:", err)
		os.Exit(1)
	}
}

// figures has one line for each file of this package. Each figure has a machine of its own, so that the peaks in the driver's
// record are its own too.
func figures(ctx context.Context, o options) []measurement.Figure {
	of := func(measure func(*bench) ([]measurement.Row, error)) func() ([]measurement.Row, error) {
		return func() (rows []measurement.Row, err error) {
			m, err := simulated.Open(ctx, o.build, machine)
			if err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, m.Close()) }()
			return measure(&bench{o, m})
		}
	}
	return []measurement.Figure{
		{IDs: stepID + " " + smallID, Measure: of((*bench).steps)},
		{IDs: launchID + " " + callID, Measure: of((*bench).calls)},
		{IDs: copyID, Measure: of((*bench).copies)},
		{IDs: startID + " " + workerID, Measure: of((*bench).starts)},
		{IDs: freedID + " " + deathID, Measure: of((*bench).deaths)},
		{IDs: onID, Measure: of((*bench).ons)},
		{IDs: limitID, Measure: of((*bench).limits)},
		{IDs: differenceID, Measure: of((*bench).differences)},
		{IDs: pointsID, Measure: of((*bench).points)},
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
	r := measurement.Of(id, unit, goal, better, "make bench-remote ONLY="+id, runs...)
	r.Case = name
	return r
}
