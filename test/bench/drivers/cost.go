package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/test/bench/calls"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	costID = "driver.cost_percent"
	// costBefore is the build that today's is compared with: the last one that recorded events in the legacy stream at
	// any time, exported names that the driver lacks, and measured overhead by process number.
	costBefore = "5b7de1e"
)

// measureCost compares what calls cost in processor time, the two builds in turn. How many instructions a call takes
// stands in the note, because the processor time of so little varies from machine to machine.
func measureCost(ctx context.Context, o options) (rows []measurement.Row, err error) {
	rounds := 41
	if o.quick {
		rounds = 5
	}
	pair, err := calls.Build(ctx, costBefore, o.build)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, pair.Close(ctx)) }()
	for _, kind := range []calls.Kind{calls.Launch, calls.Capped, calls.Allocate, calls.Both, calls.Lookup} {
		more, err := pair.Times(ctx, kind, rounds)
		if err != nil {
			return nil, err
		}
		before, after, err := pair.Instructions(ctx, kind)
		if err != nil {
			return nil, err
		}
		r := row(costID, kind.Name, "%", 3, more...)
		r.Note = fmt.Sprintf("instructions: %.1f before, %.1f after, with the fake driver's own", before, after)
		rows = append(rows, r)
	}
	return rows, nil
}
