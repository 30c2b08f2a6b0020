package main

import (
	"context"
	"fmt"
	"os"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/drivers"
)

const (
	lookupsID = "driver.lookups"
	namesID   = "driver.names"
)

// measureLookups counts the answers of cuGetProcAddress, before and after cuInit, that are not the driver's: in a share,
// and of the simulated driver.
func measureLookups(ctx context.Context, o options) ([]measurement.Row, error) {
	rows, err := eachDriver(ctx, o, func(p *drivers.Pair) (measurement.Row, error) {
		return differences(ctx, p, lookupsID, "", "lookups", "late")
	})
	if err != nil {
		return nil, err
	}
	return andSimulated(ctx, o, rows, lookupsID, "lookups", "late")
}

// measureNames counts the names of both libraries that a share, or the simulated driver, adds to the driver's or hides.
func measureNames(ctx context.Context, o options) ([]measurement.Row, error) {
	rows, err := eachDriver(ctx, o, func(p *drivers.Pair) (measurement.Row, error) {
		return differences(ctx, p, namesID, "", "names")
	})
	if err != nil {
		return nil, err
	}
	return andSimulated(ctx, o, rows, namesID, "names")
}

// differences counts what a share answers otherwise than the driver to the questions of these names, of both libraries.
// Subject tells whose answers are compared, where a figure has several.
func differences(ctx context.Context, p *drivers.Pair, id, subject string, names ...string) (measurement.Row, error) {
	answers, differ := 0, 0
	for _, name := range names {
		for _, q := range drivers.Questions {
			if q.Name != name {
				continue
			}
			result, err := p.Compare(ctx, q)
			if err != nil {
				return measurement.Row{}, err
			}
			for _, d := range result.Differences {
				fmt.Fprintf(os.Stderr, "  %s: %s: %s\n", p.Version, q, d)
			}
			answers, differ = answers+result.Answers, differ+len(result.Differences)
		}
	}
	r := row(id, subject+"driver "+p.Version, "", 0, float64(differ))
	r.Note = fmt.Sprintf("of %d answers", answers)
	return r, nil
}
