// Command vm measures what is done with devices for virtual machines: it runs the tests that tell a figure, most of them in a
// guest of QEMU without KVM, and writes docs/measurements/vm.json.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

func main() {
	build := flag.String("build", "build", "build folder")
	out := flag.String("out", "docs/measurements/vm.json", "`FILE` to merge the figures into")
	only := flag.String("only", "", "measure only the figures whose ids begin so, such as vm.guest")
	verbose := flag.Bool("v", false, "show what the tests write")
	flag.Parse()
	err := measurement.Run(func(ctx context.Context) (all []measurement.Figure) {
		for _, s := range sources {
			all = append(all, measurement.Figure{IDs: s.ids(), Measure: func() ([]measurement.Row, error) {
				return s.measure(ctx, runner{build: *build, verbose: *verbose})
			}})
		}
		return append(all, measurement.Figure{IDs: kitID, Measure: func() ([]measurement.Row, error) { return measureSuite(ctx, *verbose) }})
	}, *only, *out, false)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench vm:", err)
		os.Exit(1)
	}
}

// ids are those of a source's rows, each once.
func (s source) ids() string {
	var ids []string
	seen := map[string]bool{}
	for _, r := range s.rows {
		if !seen[r.id] {
			ids = append(ids, r.id)
		}
		seen[r.id] = true
	}
	return strings.Join(ids, " ")
}
