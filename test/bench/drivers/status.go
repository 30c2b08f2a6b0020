package main

import (
	"context"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/drivers"
)

const statusID = "driver.status"

// measureStatus counts the entry points of both libraries whose status before initialisation is not the driver's: in a
// share, given zeros and given addresses, where also what they leave there counts, and of the simulated driver, given zeros.
// What does not survive that natively is left out.
func measureStatus(ctx context.Context, o options) ([]measurement.Row, error) {
	rows, err := eachDriver(ctx, o, func(p *drivers.Pair) (measurement.Row, error) {
		return differences(ctx, p, statusID, "library, ", "status", "outputs")
	})
	if err != nil {
		return nil, err
	}
	return andSimulated(ctx, o, rows, statusID, "status")
}
