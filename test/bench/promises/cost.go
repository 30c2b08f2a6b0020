package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/test/bench/calls"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	costPercent = "promise.cost_percent"
	// costBefore is the build that today's is compared with: the last one without a cap from the first launch on, with
	// no order between our use of a handle and its end, and without figures of what descriptors keep.
	costBefore = "34a26e9"
)

// measureCost compares what calls cost in processor time, the two builds in turn, and in instructions.
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
	kinds := []calls.Kind{calls.Launch, calls.Capped, calls.Allocate, calls.Both}
	for _, kind := range kinds {
		more, err := pair.Times(ctx, kind, rounds)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row(costPercent, kind.Name, "%", 3, more))
	}
	for _, kind := range kinds {
		before, after, err := pair.Instructions(ctx, kind)
		if err != nil {
			return nil, err
		}
		r := row(costPercent, "instructions: "+kind.Name, "%", 0, []float64{calls.PercentMore(before, after)})
		r.Note = fmt.Sprintf("%.1f before, %.1f after, with the fake driver's own", before, after)
		rows = append(rows, r)
	}
	return rows, nil
}
