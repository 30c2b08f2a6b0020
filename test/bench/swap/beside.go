package main

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

const (
	burstID      = "swap.burst_s"
	onlineID     = "swap.online_ratio"
	guaranteedID = "swap.guaranteed_points"
)

// endless is a program that works until it is ended.
func (b *bench) endless(size int) []string {
	return b.sweeper(size, "--ns", "100000000", "--count", "0")
}

// begin has programs ready and lets them begin.
func (b *bench) begin(tasks ...task) ([]*simulated.Tenant, error) {
	all, err := b.ready(tasks...)
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if err := t.Go(); err != nil {
			endAll(all)
			return nil, err
		}
	}
	return all, nil
}

// bursts has a notebook work for a second every ten, beside a batch. Of each burst but the first, what counts is the time from its
// first call to the end of its first step, less that step's GPU time and what its memory takes on the link, once.
func (b *bench) bursts() ([]measurement.Row, error) {
	const step = 100 * time.Millisecond
	notebook, batch := percent(60), percent(90)
	bursts := b.times(12) + 1
	beside, err := b.begin(task{swapped(batch), b.endless(batch)})
	if err != nil {
		return nil, err
	}
	defer endAll(beside)
	all, err := b.begin(task{swapped(notebook), b.sweeper(notebook, "--ns", fmt.Sprint(step.Nanoseconds()), "--steps", "10", "--count", fmt.Sprint(bursts), "--period", "10000")})
	if err != nil {
		return nil, err
	}
	defer endAll(all)
	lines, err := all[0].Wait(b.Context())
	if err != nil {
		return nil, err
	}
	bytes := float64(notebook) * float64(mib) / linkRate
	var waits []float64
	for _, l := range lines {
		if l.First && len(waits) < bursts {
			waits = append(waits, max(0, float64(l.Wall-uint64(step))/1e9-bytes))
		}
	}
	if len(waits) != bursts {
		return nil, fmt.Errorf("look for %d bursts: %w", bursts, errNone)
	}
	waits = waits[1:]
	endAll(beside)
	r := row(burstID, "60 %, 1 s of work every 10 s, beside a batch of 90 %", "s", 0.5, measurement.Lower, waits)
	r.Note = fmt.Sprintf("What its memory takes on the link is %.3f s, and is left out. The worst of %d is %.2f s; its goal is 2.", bytes, len(waits), r.Worst)
	worst := row(burstID, "the worst of these", "s", 2, measurement.Lower, []float64{slices.Max(waits)})
	return []measurement.Row{r, worst}, b.Alone()
}

// online serves a request every 40 ms, alone and beside two batches.
func (b *bench) online() ([]measurement.Row, error) {
	service, batch := percent(40), percent(60)
	seconds := 20
	if b.quick {
		seconds = 5
	}
	program := b.sweeper(service, "--ns", "4000000", "--period", "40", "--count", fmt.Sprint(seconds*25))
	share := swapped(service, "--class", "online")
	var ratios, alones, besides []float64
	for range b.times(3) {
		alone, err := b.served(task{share, program})
		if err != nil {
			return nil, err
		}
		other := task{swapped(batch, "--class", "offline"), b.endless(batch)}
		beside, err := b.served(task{share, program}, other, other)
		if err != nil {
			return nil, err
		}
		ratios, alones, besides = append(ratios, beside/alone), append(alones, alone), append(besides, beside)
	}
	r := row(onlineID, "40 %, 25 requests a second, beside two offline batches of 60 %", "", 1.10, measurement.Lower, ratios)
	r.Note = fmt.Sprintf("The medians of p99 are %.2f ms alone and %.2f ms beside them. A request takes 4 ms of GPU time and counts from when it is due.", middle(alones), middle(besides))
	return []measurement.Row{r}, nil
}

// served is the service's p99 in ms, beside others that take turns already.
func (b *bench) served(service task, others ...task) (float64, error) {
	beside, err := b.begin(others...)
	if err != nil {
		return 0, err
	}
	defer endAll(beside)
	all, err := b.begin(service)
	if err != nil {
		return 0, err
	}
	defer endAll(all)
	lines, err := all[0].Wait(b.Context())
	if err != nil {
		return 0, err
	}
	endAll(beside)
	return lines[len(lines)-1].P99, b.Alone()
}

// guaranteed has a share in ordinary memory with fixed cores, alone and beside two that take turns.
func (b *bench) guaranteed() ([]measurement.Row, error) {
	const window = 8 * time.Second
	size := percent(40)
	share := task{ordinary(1024, "--cores", "50", "--policy", "fixed"), b.sweeper(768, "--ns", "20000000", "--steps", "1000000", "--count", "0")}
	var lost, bytes []float64
	for range b.times(3) {
		alone, _, err := b.fixed(window, share)
		if err != nil {
			return nil, err
		}
		other := task{swapped(size), b.endless(size)}
		beside, moved, err := b.fixed(window, share, other, other)
		if err != nil {
			return nil, err
		}
		lost, bytes = append(lost, math.Max(0, alone-beside)), append(bytes, moved)
	}
	points := row(guaranteedID, "50 fixed cores beside two that take turns: GPU time lost", "points", 2, measurement.Lower, lost)
	moved := row(guaranteedID, "bytes of its memory that moved", "bytes", 0, measurement.Lower, bytes)
	moved.Value = moved.Worst
	return []measurement.Row{points, moved}, nil
}

// fixed is the percentage of the GPU's time that a share has in a window, and its bytes that moved meanwhile.
func (b *bench) fixed(window time.Duration, share task, others ...task) (part, moved float64, err error) {
	all, err := b.begin(append([]task{share}, others...)...)
	if err != nil {
		return 0, 0, err
	}
	defer endAll(all)
	pids, since, err := all[0].Working(1)
	if err != nil {
		return 0, 0, err
	}
	from := since + uint64(2*time.Second)
	if part, err = b.Percent(pids, from, from+uint64(window)); err != nil {
		return 0, 0, err
	}
	in, out, err := b.moved(pids[0])
	if err != nil {
		return 0, 0, err
	}
	endAll(all)
	return part, float64(in + out), b.Alone()
}
