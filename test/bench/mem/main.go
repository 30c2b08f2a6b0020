// Command mem measures the limits on memory and their cost on the simulated driver, and writes
// docs/measurements/mem.json. The simulated driver's own record judges limits. Times are differences between the same
// program with and without Divvy's library, paired in one run.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	var o options
	flag.StringVar(&o.build, "build", "build", "build folder")
	flag.StringVar(&o.out, "out", "docs/measurements/mem.json", "file to merge the figures into")
	flag.Uint64Var(&o.allocations, "allocations", 10_000_000, "allocations of the race")
	flag.IntVar(&o.starts, "starts", 300, "concurrent starts")
	flag.StringVar(&o.only, "only", "", "measure only the figures whose ids begin so, such as mem.reclaim")
	flag.Parse()
	if err := measure(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench mem:", err)
		os.Exit(1)
	}
}
