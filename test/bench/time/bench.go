package main

import (
	"context"
	"errors"
	"os"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

const (
	machine = "a100-80g" // its driver calls cost nothing
	command = "make bench-time"
)

type options struct {
	build, out, only, kernels string
	quick                     bool
}

// runs is how often a figure is taken.
func (o options) runs() int {
	if o.quick {
		return 2
	}
	return 5
}

// bench runs programs on one simulated machine, natively or in shares of it.
type bench struct {
	options
	*simulated.Machine
}

// measure makes a machine of its own, measures, and takes the machine away again.
func measure(ctx context.Context, o options) (err error) {
	m, err := simulated.Open(ctx, o.build, machine)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	return (&bench{o, m}).all()
}

func (b *bench) all() error {
	of := func(measure func(*bench) ([]measurement.Row, error)) func() ([]measurement.Row, error) {
		return func() ([]measurement.Row, error) { return measure(b) }
	}
	out := b.out
	if b.quick || b.kernels != "" {
		out = ""
	}
	return measurement.Take([]measurement.Figure{
		{IDs: "time.cap_mae_points time.cap_throughput_percent", Measure: of(caps)},
		{IDs: "time.pair_error_points time.pair_sum_percent", Measure: of(pairs)},
		{IDs: "time.weighted_error_points", Measure: of(weights)},
		{IDs: "time.group_error_points", Measure: of(groups)},
		{IDs: "time.launch_added_ns time.launch_added_percent", Measure: of(launches)},
		{IDs: "time.online_p99_ratio time.offline_harvest_percent time.yield_p99_ms", Measure: of(online)},
		{IDs: busyID, Measure: of(busy)},
		{IDs: virtualIDs, Measure: of(virtual)},
	}, b.only, out, os.Stdout)
}

// row is a row of one case; its command takes the figure alone.
func row(id, name, unit string, goal float64, better measurement.Direction, runs []float64) measurement.Row {
	r := measurement.Of(id, unit, goal, better, command+" ONLY="+id, runs...)
	r.Case = name
	return r
}
