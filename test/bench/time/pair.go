package main

import (
	"fmt"
	"math"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
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
		if err := b.Alone(); err != nil {
			return nil, err
		}
	}
	return sorted(rows), nil
}

// pair returns the larger of the two errors and the sum as a part of what one gets alone, of each window. What a
// tenant is due is its cores, or what it gets beside the same neighbour without a share of its own if that is less: a
// tenant that waits for each kernel cannot use its neighbour's slices.
func (b *bench) pair(k kernels, cores ...int) (errs, sums []float64, err error) {
	alone, err := b.native(k)
	if err != nil {
		return nil, nil, err
	}
	due := make([]float64, len(cores))
	for i, part := range cores {
		uncapped, err := b.beside(k, cores[1-i])
		if err != nil {
			return nil, nil, err
		}
		due[i] = min(float64(part), uncapped)
	}
	wrong, sum := make([]float64, b.runs()), make([]float64, b.runs())
	var pids [][]int
	since := uint64(0)
	for _, part := range cores {
		t, err := b.fixed(k, part)
		if err != nil {
			return nil, nil, err
		}
		defer t.End()
		own, begun, err := t.Working(1)
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
		fmt.Printf("  %-24s of %2d: alone %5.1f, due %5.1f, got %s\n", k.name, part, alone, due[i], numbers(got))
		for run := range got {
			wrong[run] = max(wrong[run], math.Abs(got[run]-due[i]))
			sum[run] += 100 * got[run] / alone
		}
	}
	return wrong, sum, nil
}

// fixed starts a tenant under a cap.
func (b *bench) fixed(k kernels, cores int) (*simulated.Tenant, error) {
	return b.Start([]string{"--cores", fmt.Sprint(cores), "--policy", "fixed"}, append([]string{b.Gpubench}, k.load()...)...)
}

// beside is what kernels get without a share beside a tenant under a cap.
func (b *bench) beside(k kernels, cores int) (float64, error) {
	neighbour, err := b.fixed(k, cores)
	if err != nil {
		return 0, err
	}
	defer neighbour.End()
	if _, _, err := neighbour.Working(1); err != nil {
		return 0, err
	}
	part, err := b.native(k)
	neighbour.End()
	if err == nil {
		err = b.Alone()
	}
	return part, err
}
