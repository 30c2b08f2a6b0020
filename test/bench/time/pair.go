package main

import (
	"fmt"
	"math"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

// pairs lets two tenants with the same kernels and fixed shares contend.
func pairs(b *bench) ([]measurement.Row, error) {
	var rows []measurement.Row
	for _, k := range b.cases() {
		errs, sums, err := b.pair(k, 30, 70)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row("time.pair_error_points", k.name, "points", 1.5, measurement.Lower, errs),
			row("time.pair_sum_percent", k.name, "%", 97, measurement.Higher, sums))
		if err := b.alone(); err != nil {
			return nil, err
		}
	}
	return sorted(rows), nil
}

// pair returns the larger of the two errors and the sum as a part of what one gets alone, of each window.
func (b *bench) pair(k kernels, cores ...int) (errs, sums []float64, err error) {
	uncapped, err := b.native(k)
	if err != nil {
		return nil, nil, err
	}
	wrong, sum := make([]float64, b.runs()), make([]float64, b.runs())
	var pids [][]int
	since := uint64(0)
	for _, part := range cores {
		flags := []string{"--cores", fmt.Sprint(part), "--policy", "fixed"}
		t, err := b.start(flags, append([]string{b.gpubench}, k.load()...)...)
		if err != nil {
			return nil, nil, err
		}
		defer t.end()
		own, begun, err := t.working(1)
		if err != nil {
			return nil, nil, err
		}
		pids, since = append(pids, own), max(since, begun)
	}
	for i, part := range cores {
		got, err := b.windows(pids[i], since, k)
		if err != nil {
			return nil, nil, err
		}
		fmt.Printf("  %-24s of %2d: alone %5.1f, got %s\n", k.name, part, uncapped, numbers(got))
		for run := range got {
			wrong[run] = max(wrong[run], math.Abs(got[run]-min(float64(part), uncapped)))
			sum[run] += 100 * got[run] / uncapped
		}
	}
	return wrong, sum, nil
}
