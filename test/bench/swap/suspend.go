package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/suspensions"
)

const (
	lostID  = "suspend.lost_bytes"
	addedID = "suspend.added_ms"
)

// suspended suspends shares at random, while agent and helper are killed, and then times it without kills.
func suspended(ctx context.Context, o options) ([]measurement.Row, error) {
	count := 1000
	if o.quick {
		count = 24
	}
	r, err := suspensions.Run(ctx, suspensions.Options{Tree: install.Tree(o.build), Count: count, Kills: true, Seed: 21})
	if err != nil {
		return nil, err
	}
	if len(r.Took) == 0 {
		return nil, fmt.Errorf("time suspensions: %w", errNone)
	}
	changed := row(lostID, "bytes changed", "bytes", 0, measurement.Lower, []float64{float64(r.Changed)})
	changed.Note = fmt.Sprintf("%d suspensions of programs at work, six of which four fit; %d times the agent was killed meanwhile, %d times its helper.", r.Suspensions, r.Agents, r.Helpers)
	lost := row(lostID, "processes lost", "", 0, measurement.Lower, []float64{float64(r.Lost)})
	var added []float64
	for _, took := range r.Took {
		added = append(added, float64(took-r.Driver)/float64(time.Millisecond))
	}
	sorted := slices.Sorted(slices.Values(added))
	p99 := sorted[(len(sorted)-1)*99/100]
	beyond := row(addedID, "p99 of a suspension with its resumption", "ms", 200, measurement.Lower, []float64{p99})
	beyond.Note = fmt.Sprintf("Of %d; the median is %.1f ms. The driver's own four calls take %.1f ms, and are subtracted.", len(added), middle(added), float64(r.Driver)/float64(time.Millisecond))
	return []measurement.Row{changed, lost, beyond}, nil
}
