// Mig measures how well instances of MIG are placed, against the exact optimum: by the policy itself and through
// Kubernetes' allocator; that nothing is left or lost of instances while agents die; and what of a fatal fault is noticed in
// other instances. It merges its rows into docs/measurements/mig.json.
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
	flag.StringVar(&b.build, "build", "build", "build `FOLDER`")
	var c churner
	flag.StringVar(&c.role, "role", "", "be a process of mig.churn: agent or tool")
	flag.StringVar(&c.folder, "folder", "", "its `FOLDER`")
	flag.StringVar(&c.library, "library", "", "its driver's library")
	flag.Uint64Var(&c.seed, "seed", 0, "its seed")
	out := flag.String("out", "docs/measurements/mig.json", "`FILE` to merge the figures into, empty for none")
	only := flag.String("only", "", "measure only the figures whose ids begin so")
	flag.Parse()
	if c.role != "" {
		exit(c.run())
	}
	exit(measurement.Take([]measurement.Figure{
		{IDs: "mig.online", Measure: b.online},
		{IDs: "mig.layouts", Measure: b.layouts},
		{IDs: "mig.firstfit", Measure: b.firstfit},
		{IDs: "mig.churn", Measure: b.churn},
		{IDs: "mig.faults", Measure: b.faults},
	}, *only, *out, os.Stdout))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "mig:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
