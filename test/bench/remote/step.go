package main

import (
	"fmt"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

const (
	stepID  = "remote.step_ratio"
	smallID = "remote.small_ratio"
)

// steps compares a step of a program: of each run its median step, of the runs the median ratio.
func (b *bench) steps() ([]measurement.Row, error) {
	var rows []measurement.Row
	for _, c := range []struct {
		id    string
		ns    int
		count int
		goal  float64
	}{{stepID, 60_000, 40, 1.01}, {smallID, 5_000, 300, 1.15}} {
		pairs, err := b.pairs(21, medianStep, "step", "--ns", fmt.Sprint(c.ns), "--count", fmt.Sprint(c.count))
		if err != nil {
			return nil, err
		}
		r := row(c.id, "local", "", c.goal, measurement.Lower, each(pairs[0], func(p pair) float64 { return p.remote / p.local }))
		own, away := medians(pairs[0])
		r.Note = fmt.Sprintf("A step has 294 launches of %d µs, 8 copies of 16 KiB, of which 4 are from pageable memory, and 4 waits; "+
			"of each run of %d steps the median counts. In a local share it takes %.3f ms, remote %.3f ms.",
			c.ns/1000, c.count, own/1e6, away/1e6)
		rows = append(rows, r)
	}
	return rows, nil
}

func medianStep(lines []simulated.Line) []float64 {
	var walls []float64
	for _, l := range lines {
		if l.Wall > 0 {
			walls = append(walls, float64(l.Wall))
		}
	}
	return []float64{middle(walls)}
}
