// Command ops measures what it costs to see a server's GPUs and shares, on the simulated driver, and writes
// docs/measurements/ops.json.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

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
	flag.StringVar(&o.out, "out", "docs/measurements/ops.json", "file to merge the figures into")
	flag.StringVar(&o.only, "only", "", "measure only the figures whose ids begin so, such as ops.scrape")
	flag.BoolVar(&o.quick, "quick", false, "fewer shares and scrapes, to see whether something works; writes nothing")
	flag.Parse()
	if err := measurement.Run(func(ctx context.Context) []measurement.Figure { return figures(ctx, o) }, o.only, o.out, o.quick); err != nil {
		fmt.Fprintln(os.Stderr, "bench ops:", err)
		os.Exit(1)
	}
}

// figures has one line for each figure. Each is measured in a file of its own.
func figures(ctx context.Context, o options) []measurement.Figure {
	return []measurement.Figure{
		{IDs: scrapeID, Measure: func() ([]measurement.Row, error) { return measureScrapes(ctx, o) }},
		{IDs: listID, Measure: func() ([]measurement.Row, error) { return measureLists(ctx, o) }},
		{IDs: residentID + " " + addedID, Measure: func() ([]measurement.Row, error) { return measureCost(ctx, o) }},
		{IDs: topID, Measure: func() ([]measurement.Row, error) { return measureTop(ctx, o) }},
		{IDs: docsID, Measure: func() ([]measurement.Row, error) { return measureDocs(ctx, o) }},
		{IDs: distID, Measure: func() ([]measurement.Row, error) { return measureDist(ctx) }},
	}
}
