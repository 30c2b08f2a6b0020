package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	// otherRatio compares how quickly another driver's claims are placed with our slices present and without.
	otherRatio = "cluster.other_driver_ratio"
	// otherNodes and the pods of a round.
	otherNodes, otherRound = 200, 600
)

func measureOther(ctx context.Context, o options) (rows []measurement.Row, err error) {
	b, err := open(ctx, o, o.NodesOr(otherNodes))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	if err := b.publishOther(ctx); err != nil {
		return nil, err
	}
	var ratios, with, without []float64
	var last [2]outcome
	for run := range o.Rounds() {
		// The one that comes second finds warmer caches: they take turns.
		pair, err := b.pair(ctx, run%2 == 0)
		if err != nil {
			return nil, err
		}
		alone, beside := pair[0], pair[1]
		with, without = append(with, beside.rate()), append(without, alone.rate())
		ratios, last = append(ratios, beside.rate()/alone.rate()), [2]outcome{beside, alone}
	}
	note := fmt.Sprintf("%d nodes with eight devices of another driver and %d GPUs each; the last round took for each pod with our slices %s, without %s",
		b.nodes, len(b.inventory), last[0].costs(), last[1].costs())
	return []measurement.Row{
		target.More(otherRatio, "", "", 0.9, ratios, note),
		target.More(otherRatio, "with our slices", "pods/s", 0, with, ""),
		target.More(otherRatio, "without", "pods/s", 0, without, ""),
	}, nil
}

// pair has another driver's claims placed twice: without our slices, and with them.
func (b *bench) pair(ctx context.Context, aloneFirst bool) (outcomes [2]outcome, err error) {
	const alone, beside = 0, 1
	order := []int{alone, beside}
	if !aloneFirst {
		order = []int{beside, alone}
	}
	for _, which := range order {
		profiled := func() error { return nil }
		if which == beside {
			if err := b.publish(ctx); err != nil {
				return outcomes, err
			}
			profiled = b.profileScheduler(ctx)
		}
		outcomes[which], err = b.placedOther(ctx)
		if err := errors.Join(err, profiled()); err != nil {
			return outcomes, err
		}
		if which == beside {
			if err := b.withdraw(ctx, v1alpha1.Driver); err != nil {
				return outcomes, err
			}
		}
	}
	return outcomes, nil
}

// placedOther has another driver's claims placed. A few before them do not count: with them the scheduler takes in which
// slices there are.
func (b *bench) placedOther(ctx context.Context) (outcome, error) {
	if o, err := b.placed(ctx, otherPods(), 20, roundLimit); err != nil {
		return o, err
	}
	return b.placed(ctx, otherPods(), b.Few(otherRound), roundLimit)
}
