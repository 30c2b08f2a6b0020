// Command time measures how a GPU's time is divided, on the simulated driver, and writes
// docs/measurements/time.json. Figures come from the simulated driver's own record, never from what the libraries
// and the agent report of themselves. Cases that are compared run one after the other in one run.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	var o options
	flag.StringVar(&o.build, "build", "build", "build folder")
	flag.StringVar(&o.out, "out", "docs/measurements/time.json", "file to merge the figures into")
	flag.StringVar(&o.only, "only", "", "measure only the figures whose ids begin so, such as time.pair")
	flag.StringVar(&o.kernels, "case", "", "and of these only the cases whose names begin so, such as \"1 ms\"; writes nothing")
	flag.BoolVar(&o.quick, "quick", false, "fewer and shorter runs, to see whether something works; writes nothing")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench time:", err)
		os.Exit(1)
	}
}

// run ends what it started also when it is interrupted.
func run(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return measure(ctx, o)
}
