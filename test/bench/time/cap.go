package main

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

// settle is left out at the beginning of a tenant's work.
const settle = time.Second

// native is what kernels get of the GPU without a share. Kernels that wait for the processor get less while the
// machine has other things to do: the best of some moments is what they can get.
func (b *bench) native(k kernels) (float64, error) {
	const moments, moment = 4, 500 * time.Millisecond
	t, err := b.Start(nil, append([]string{b.Gpubench}, k.load()...)...)
	if err != nil {
		return 0, err
	}
	defer t.End()
	pids, since, err := t.Working(1)
	if err != nil {
		return 0, err
	}
	best := 0.0
	for i := range uint64(moments) {
		from := since + (i+1)*uint64(moment)
		part, err := b.Percent(pids, from, from+uint64(moment))
		if err != nil {
			return 0, err
		}
		best = max(best, part)
	}
	return best, nil
}

// windows is what processes get in windows one after the other.
func (b *bench) windows(pids []int, since uint64, k kernels) ([]float64, error) {
	var parts []float64
	for i := range b.runs() {
		from := since + uint64(settle) + uint64(i)*uint64(k.window)
		part, err := b.Percent(pids, from, from+uint64(k.window))
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// capped is what one tenant under a cap was entitled to and got, in percent of the GPU.
type capped struct {
	entitled float64
	got      []float64
}

func (b *bench) capped(k kernels, cores int) (capped, error) {
	uncapped, err := b.native(k)
	if err != nil {
		return capped{}, err
	}
	t, err := b.fixed(k, cores)
	if err != nil {
		return capped{}, err
	}
	defer t.End()
	pids, since, err := t.Working(1)
	if err != nil {
		return capped{}, err
	}
	got, err := b.windows(pids, since, k)
	fmt.Printf("  %-24s cap %2d: uncapped %5.1f, got %s\n", k.name, cores, uncapped, numbers(got))
	return capped{min(float64(cores), uncapped), got}, err
}

// caps holds one tenant to a cap, once for each cap; window i of all caps together is run i.
func caps(b *bench) ([]measurement.Row, error) {
	var rows []measurement.Row
	for _, k := range b.cases() {
		var all []capped
		for _, cores := range []int{10, 25, 50, 75, 90} {
			c, err := b.capped(k, cores)
			if err != nil {
				return nil, err
			}
			all = append(all, c)
			if err := b.Alone(); err != nil {
				return nil, err
			}
		}
		var errs, through []float64
		for i := range b.runs() {
			wrong, got, entitled := 0.0, 0.0, 0.0
			for _, c := range all {
				wrong += math.Abs(c.got[i]-c.entitled) / float64(len(all))
				got += min(c.got[i], c.entitled)
				entitled += c.entitled
			}
			errs = append(errs, wrong)
			through = append(through, 100*got/entitled)
		}
		rows = append(rows, row("time.cap_mae_points", k.name, "points", 1, measurement.Lower, errs),
			row("time.cap_throughput_percent", k.name, "%", 97, measurement.Higher, through))
	}
	return sorted(rows), nil
}

// sorted keeps the rows of one id together.
func sorted(rows []measurement.Row) []measurement.Row {
	slices.SortStableFunc(rows, func(a, b measurement.Row) int {
		switch {
		case a.ID < b.ID:
			return -1
		case a.ID > b.ID:
			return 1
		}
		return 0
	})
	return rows
}

func numbers(list []float64) string {
	text := ""
	for _, number := range list {
		text += fmt.Sprintf(" %5.1f", number)
	}
	return text
}
