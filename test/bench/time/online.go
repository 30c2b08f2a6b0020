package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

// online serves requests alone and beside an offline tenant that never rests, with the same arrivals.
func online(b *bench) ([]measurement.Row, error) {
	var ratios, harvests, yields []float64
	for run := range b.runs() {
		seed := fmt.Sprint(run + 7)
		alone, err := b.serve(seed, nil)
		if err != nil {
			return nil, err
		}
		offline, err := b.Start([]string{"--class", "offline"}, b.Gpubench, "load", "--ns", "200000")
		if err != nil {
			return nil, err
		}
		beside, err := b.serve(seed, offline)
		offline.End()
		if err != nil {
			return nil, err
		}
		if err := b.Alone(); err != nil {
			return nil, err
		}
		fmt.Printf("  p99 alone %.2f ms, beside %.2f ms; harvest %.1f %%; yield p50 %.2f p99 %.2f ms, %d bursts\n",
			alone.p99, beside.p99, beside.harvest, quantile(beside.yields, 0.5), quantile(beside.yields, 0.99), len(beside.yields))
		ratios = append(ratios, beside.p99/alone.p99)
		harvests = append(harvests, beside.harvest)
		yields = append(yields, quantile(beside.yields, 0.99))
	}
	return []measurement.Row{
		row("time.online_p99_ratio", "", "ratio", 1.05, measurement.Lower, ratios),
		row("time.offline_harvest_percent", "", "%", 80, measurement.Higher, harvests),
		row("time.yield_p99_ms", "", "ms", 2, measurement.Lower, yields),
	}, nil
}

// service is how one minute of requests went: latency in ms, the part of the idle time that the neighbour got, and
// per burst the ms that the neighbour had after its first launch.
type service struct {
	p99, harvest float64
	yields       []float64
}

func (b *bench) serve(seed string, neighbour *simulated.Tenant) (service, error) {
	seconds := 60
	if b.quick {
		seconds = 10
	}
	t, err := b.Start([]string{"--class", "online"}, b.Gpubench, "serve", "--rate", "25", "--kernels", "20",
		"--ns", "1000000", "--seconds", fmt.Sprint(seconds), "--seed", seed)
	if err != nil {
		return service{}, err
	}
	defer t.End()
	pids, begin, err := t.Working(1)
	if err != nil {
		return service{}, err
	}
	var other []int
	var stretches []simulated.Segment
	if neighbour != nil {
		if other, _, err = neighbour.Working(1); err == nil {
			stretches, err = b.stretches(other[0], t)
		}
		if err != nil {
			return service{}, err
		}
	}
	lines, err := t.Wait(b.Context())
	if err != nil || neighbour == nil {
		return service{p99: lines[len(lines)-1].P99}, err
	}
	// The last moments are left out: the online process is gone from the record when it has ended.
	first, last, err := b.Oracle.Between(b.Context(), begin, begin+uint64(seconds-1)*uint64(time.Second))
	if err != nil {
		return service{}, err
	}
	idle := last.At - first.At - (last.Sum(pids) - first.Sum(pids))
	return service{
		p99:     lines[len(lines)-1].P99,
		harvest: 100 * float64(last.Sum(other)-first.Sum(other)) / float64(idle),
		yields:  yields(bursts(lines), stretches),
	}, nil
}

// stretches collects when a process had the GPU until a tenant ends: the driver keeps the latest only.
func (b *bench) stretches(pid int, until *simulated.Tenant) ([]simulated.Segment, error) {
	var all []simulated.Segment
	for {
		ended := false
		select {
		case <-until.Ended():
			ended = true
		case <-b.Context().Done():
			return nil, b.Context().Err()
		case <-time.After(250 * time.Millisecond):
		}
		latest, err := b.Oracle.Segments(pid)
		if err != nil {
			return nil, err
		}
		// The last one known may have grown since.
		if len(all) > 0 {
			last := all[len(all)-1].Begin
			latest = slices.DeleteFunc(latest, func(s simulated.Segment) bool { return s.Begin < last })
			all = all[:len(all)-1]
		}
		all = append(all, latest...)
		if ended {
			return all, nil
		}
	}
}

// bursts are the requests that came when nothing was to do, each with the end of what came behind it.
func bursts(lines []simulated.Line) []simulated.Line {
	var all []simulated.Line
	for _, l := range lines {
		if l.First {
			all = append(all, l)
		} else if l.Arrival != 0 && len(all) > 0 {
			all[len(all)-1].Done = l.Done
		}
	}
	return all
}

// yields is the neighbour's GPU time, in ms, from the first launch of each burst to its last answer.
func yields(bursts []simulated.Line, neighbour []simulated.Segment) []float64 {
	var all []float64
	next := 0
	for _, burst := range bursts {
		used := uint64(0)
		for next < len(neighbour) && neighbour[next].Begin+neighbour[next].Length <= burst.Launched {
			next++
		}
		for _, s := range neighbour[next:] {
			if s.Begin >= burst.Done {
				break
			}
			used += min(s.Begin+s.Length, burst.Done) - max(s.Begin, burst.Launched)
		}
		all = append(all, float64(used)/1e6)
	}
	return all
}

func quantile(list []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(float64(len(sorted)-1)*q)]
}
