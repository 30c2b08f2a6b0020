package main

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const pointsID = "remote.time_points"

// What is left out at the beginning, and how long a window is.
const (
	settle = time.Second
	window = 2 * time.Second
)

// points has a remote share of 30 beside a local one of 70. Of each window the larger of the two distances counts.
func (b *bench) points() ([]measurement.Row, error) {
	var rows []measurement.Row
	for _, c := range []struct {
		name string
		load []string
	}{
		{"local, kernels of 1 ms", []string{"--ns", "1000000", "--sync", "8"}},
		{"local, kernels of 60 µs", []string{"--ns", "60000", "--sync", "128"}},
	} {
		off, note, err := b.beside(append([]string{b.Gpubench, "load"}, c.load...))
		if err != nil {
			return nil, err
		}
		r := row(pointsID, c.name, "points", 1.5, measurement.Lower, off)
		r.Note = note
		rows = append(rows, r)
	}
	return rows, nil
}

func (b *bench) beside(program []string) (off []float64, note string, err error) {
	cores := func(share []string, percent string) []string {
		return slices.Concat(share, []string{"--cores", percent, "--policy", "fixed"})
	}
	away, err := b.Start(cores(remote, "30"), program...)
	if err != nil {
		return nil, "", err
	}
	defer away.End()
	if _, _, err := away.Working(1); err != nil {
		return nil, "", err
	}
	worker, err := b.worker()
	if err != nil {
		return nil, "", err
	}
	own, err := b.Start(cores(local, "70"), program...)
	if err != nil {
		return nil, "", err
	}
	defer own.End()
	pids, since, err := own.Working(1)
	if err != nil {
		return nil, "", err
	}
	var thirty, seventy []float64
	for i := range uint64(b.times(10)) {
		from := since + uint64(settle) + i*uint64(window)
		a, err := b.Percent([]int{worker}, from, from+uint64(window))
		if err != nil {
			return nil, "", err
		}
		l, err := b.Percent(pids, from, from+uint64(window))
		if err != nil {
			return nil, "", err
		}
		thirty, seventy = append(thirty, a), append(seventy, l)
		off = append(off, max(math.Abs(a-30), math.Abs(l-70)))
	}
	own.End()
	away.End()
	note = fmt.Sprintf("The medians are %.2f and %.2f %% of the GPU's time, of windows of %s.", middle(thirty), middle(seventy), window)
	return off, note, b.Alone()
}
