package main

import (
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const fitID = "swap.fit_ratio"

// fit compares two that fit together with the same two in ordinary memory.
func (b *bench) fit() ([]measurement.Row, error) {
	size := percent(45)
	program := b.sweeper(size, "--ns", "100000000", "--count", fmt.Sprint(b.times(20)))
	var ratios []float64
	for i := range b.times(7) {
		var took [2]time.Duration
		for turn := range 2 {
			which := (i + turn) % 2
			share := [][]string{ordinary(size), swapped(size)}[which]
			var err error
			if _, took[which], err = b.together(task{share, program}, task{share, program}); err != nil {
				return nil, err
			}
		}
		ratios = append(ratios, took[1].Seconds()/took[0].Seconds())
	}
	r := row(fitID, "two of 45 %", "", 1.02, measurement.Lower, ratios)
	r.Note = fmt.Sprintf("Each has %d MiB of a GPU of 4 GiB and goes through it 20 times, in 100 ms of GPU time each.", size)
	return []measurement.Row{r}, nil
}

// turns compares programs that take turns with one of them alone, as often.
func (b *bench) turns() ([]measurement.Row, error) {
	var rows []measurement.Row
	for _, c := range []struct {
		name                  string
		count, percent, steps int
		goal                  float64
	}{
		{"two of 95 %", 2, 95, 240, 1.05},
		{"three of 60 %", 3, 60, 180, 1.12},
	} {
		size := percent(c.percent)
		program := b.sweeper(size, "--ns", "100000000", "--count", fmt.Sprint(c.steps))
		var ratios, alones []float64
		var note string
		for range b.times(3) {
			_, alone, err := b.together(task{swapped(size), program})
			if err != nil {
				return nil, err
			}
			var tasks []task
			for range c.count {
				tasks = append(tasks, task{swapped(size), program})
			}
			_, took, err := b.together(tasks...)
			if err != nil {
				return nil, err
			}
			ratios, alones = append(ratios, took.Seconds()/alone.Seconds()/float64(c.count)), append(alones, alone.Seconds())
		}
		r := row(turnsID, c.name, "", c.goal, measurement.Lower, ratios)
		r.Note = fmt.Sprintf("Each has %d MiB of a GPU of 4 GiB, whose link has %.0f GB/s, and goes through it %d times; alone that takes %.2f s.", size, linkRate/1e9, c.steps, middle(alones)) + note
		rows = append(rows, r)
	}
	return rows, nil
}
