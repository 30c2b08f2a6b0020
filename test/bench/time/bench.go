package main

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// figure measures rows with one or several ids.
type figure struct {
	ids     string
	measure func(*bench) ([]measurement.Row, error)
}

func figures() []figure {
	return []figure{
		{"time.cap_mae_points time.cap_throughput_percent", caps},
		{"time.pair_error_points time.pair_sum_percent", pairs},
		{"time.weighted_error_points", weights},
		{"time.group_error_points", groups},
		{"time.launch_added_ns time.launch_added_percent", launches},
		{"time.online_p99_ratio time.offline_harvest_percent time.yield_p99_ms", online},
		{busyID, busy},
		{virtualIDs, virtual},
	}
}

func (b *bench) all() error {
	for _, f := range figures() {
		if !measurement.Wanted(f.ids, b.only) {
			continue
		}
		begin := time.Now()
		rows, err := f.measure(b)
		if err != nil {
			return fmt.Errorf("measure %s: %w", f.ids, err)
		}
		for _, row := range rows {
			fmt.Printf("%-30s %-28s %10.3f %-7s goal %v reached %v (worst %.3f of %d)\n",
				row.ID, row.Case, row.Value, row.Unit, *row.Goal, row.Reached(), row.Worst, row.Runs)
		}
		fmt.Printf("took %s\n", time.Since(begin).Round(time.Second))
		if b.quick || b.kernels != "" {
			continue
		}
		if err := measurement.Merge(b.out, rows); err != nil {
			return err
		}
	}
	return nil
}

// row is a row of one case; its command takes the figure alone.
func row(id, name, unit string, goal float64, better measurement.Direction, runs []float64) measurement.Row {
	r := measurement.Of(id, unit, goal, better, command+" ONLY="+id, runs...)
	r.Case = name
	return r
}
