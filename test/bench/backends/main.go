// Command backends measures the driver's own ways to share a GPU in Divvy, on the simulated driver, and writes
// docs/measurements/backends.json. The simulated driver's own record judges them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

func main() {
	build := flag.String("build", "build", "build folder")
	out := flag.String("out", "docs/measurements/backends.json", "file to merge the figures into")
	only := flag.String("only", "", "measure only the figures whose ids begin so, such as mps.limits")
	quick := flag.Bool("quick", false, "fewer runs, to see whether something works; writes nothing")
	flag.Parse()
	figures := func(ctx context.Context) []measurement.Figure {
		b := bench{ctx: ctx, build: *build, runs: 7}
		if *quick {
			b.runs = 1
		}
		return slices.Concat(b.forms(), b.mps(), b.dialects())
	}
	if err := measurement.Run(figures, *only, *out, *quick); err != nil {
		fmt.Fprintln(os.Stderr, "bench backends:", err)
		os.Exit(1)
	}
}

// bench is what all figures are measured with.
type bench struct {
	ctx   context.Context
	build string
	runs  int
}

// command is the line with which an id is measured again.
func command(id string) string { return "make bench-backends ONLY=" + id }
