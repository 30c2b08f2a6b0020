package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

// The heaviest tenant works and pauses in turn; a change counts from the moment at which it really did.
const (
	workMs  = 1500
	pauseMs = 1500
	adapt   = 60 * time.Millisecond
	after   = time.Second
)

// weights lets three tenants contend by weight, one of which goes idle and comes back.
func weights(b *bench) ([]measurement.Row, error) {
	var rows []measurement.Row
	for _, k := range b.cases() {
		if k.window > time.Second {
			continue // kernels of 50 ms cannot be divided in a second
		}
		idle, back, err := b.weighted(k)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row("time.weighted_error_points", k.name+", one goes idle", "points", 2, measurement.Lower, idle),
			row("time.weighted_error_points", k.name+", and comes back", "points", 2, measurement.Lower, back))
		if err := b.Alone(); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// weighted returns the largest error of any tenant after each change.
func (b *bench) weighted(k kernels) (idle, back []float64, err error) {
	uncapped, err := b.native(k)
	if err != nil {
		return nil, nil, err
	}
	parts := []float64{1, 2, 4}
	var tenants []*simulated.Tenant
	for i, part := range parts {
		load := append([]string{b.Gpubench}, k.load()...)
		if i == len(parts)-1 {
			load = append(load, "--work", fmt.Sprint(workMs), "--pause", fmt.Sprint(pauseMs))
		}
		t, err := b.Start([]string{"--weight", fmt.Sprint(part)}, load...)
		if err != nil {
			return nil, nil, err
		}
		defer t.End()
		if _, _, err := t.Working(1); err != nil {
			return nil, nil, err
		}
		tenants = append(tenants, t)
	}
	// Pauses and returns alternate; the first pause is left out with the beginning.
	for n := 2; n < 2+2*b.runs(); n++ {
		change, err := b.change(tenants[len(tenants)-1], n)
		if err != nil {
			return nil, nil, err
		}
		pausing := change.Phase == "pause"
		wrong, err := b.wrong(k, change, tenants, parts, pausing, uncapped)
		if err != nil {
			return nil, nil, err
		}
		if pausing {
			idle = append(idle, wrong)
		} else {
			back = append(back, wrong)
		}
	}
	return idle, back, nil
}

// change waits for the tenant's nth change of phase, the first of which is its beginning.
func (b *bench) change(t *simulated.Tenant, n int) (simulated.Line, error) {
	for {
		phase, seen := "", 0
		for _, l := range t.All() {
			if l.Phase == "" || l.Phase == phase {
				continue
			}
			if phase = l.Phase; seen == n {
				return l, nil
			}
			seen++
		}
		if err := b.Pause(10 * time.Millisecond); err != nil {
			return simulated.Line{}, err
		}
	}
}

// wrong compares with the weights what the tenants get from a moment after the change on; what a tenant cannot use
// alone is not its due.
func (b *bench) wrong(k kernels, change simulated.Line, tenants []*simulated.Tenant, parts []float64, pausing bool, uncapped float64) (float64, error) {
	sum, worst := 0.0, 0.0
	active := len(parts)
	if pausing {
		active--
	}
	for _, part := range parts[:active] {
		sum += part
	}
	var got []float64
	from := change.At + uint64(adapt)
	for i := range active {
		pids, _, err := tenants[i].Working(1)
		if err != nil {
			return 0, err
		}
		percent, err := b.Percent(pids, from, from+uint64(after))
		if err != nil {
			return 0, err
		}
		got = append(got, percent)
		worst = max(worst, math.Abs(percent-min(100*parts[i]/sum, uncapped)))
	}
	fmt.Printf("  %-24s %d of 3 active: got %s, off by %.2f\n", k.name, active, strings.TrimSpace(numbers(got)), worst)
	return worst, nil
}
