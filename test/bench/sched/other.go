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
	b, err := open(ctx, o, o.nodesOr(otherNodes))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	if err := b.publishOther(ctx); err != nil {
		return nil, err
	}
	pods, n := otherPods(), o.few(otherRound)
	// placed follows a few pods that do not count: with them the scheduler takes in which slices there are.
	placed := func() (outcome, error) {
		if o, err := b.placed(ctx, pods, 20, roundLimit); err != nil {
			return o, err
		}
		return b.placed(ctx, pods, n, roundLimit)
	}
	var ratios, with, without []float64
	var last [2]outcome
	for range o.runs() {
		alone, err := placed()
		if err != nil {
			return nil, err
		}
		if err := b.publish(ctx); err != nil {
			return nil, err
		}
		profiled := b.profileScheduler(ctx)
		beside, err := placed()
		if err := errors.Join(err, profiled()); err != nil {
			return nil, err
		}
		if err := b.withdraw(ctx, v1alpha1.Driver); err != nil {
			return nil, err
		}
		with, without = append(with, beside.rate()), append(without, alone.rate())
		ratios, last = append(ratios, beside.rate()/alone.rate()), [2]outcome{beside, alone}
	}
	note := fmt.Sprintf("%d nodes with eight devices of another driver and %d GPUs each; the last round took for each pod with our slices %s, without %s",
		b.nodes, len(b.inventory), last[0].costs(), last[1].costs())
	return []measurement.Row{
		rowOf(otherRatio, "", "", 0.9, ratios, note),
		rowOf(otherRatio, "with our slices", "pods/s", 0, with, ""),
		rowOf(otherRatio, "without", "pods/s", 0, without, ""),
	}, nil
}
