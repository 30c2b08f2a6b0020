// Mig measures how well instances of MIG are placed, against the exact optimum: by the policy itself and through
// Kubernetes' allocator. It merges its rows into docs/measurements/mig.json.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

func main() {
	b := &bench{}
	flag.StringVar(&b.machines, "machines", "testdata/mig", "`FOLDER` with the profiles of GPUs")
	flag.BoolVar(&b.held, "all", false, "measure all drawn mixes, not only those for the time of changing the policy")
	flag.IntVar(&b.runs, "runs", 10, "how many runs of requests for each mix")
	out := flag.String("out", "docs/measurements/mig.json", "`FILE` to merge the figures into, empty for none")
	only := flag.String("only", "", "measure only the figures whose ids begin so")
	flag.Parse()
	err := measurement.Take([]measurement.Figure{
		{IDs: "mig.online", Measure: b.online},
		{IDs: "mig.layouts", Measure: b.layouts},
		{IDs: "mig.firstfit", Measure: b.firstfit},
	}, *only, *out, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mig:", err)
		os.Exit(1)
	}
}
