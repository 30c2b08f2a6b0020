package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
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
		offline, err := b.start([]string{"--class", "offline"}, b.gpubench, "load", "--ns", "200000")
		if err != nil {
			return nil, err
		}
		beside, err := b.serve(seed, offline)
		offline.end()
		if err != nil {
			return nil, err
		}
		if err := b.alone(); err != nil {
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

func (b *bench) serve(seed string, neighbour *tenant) (service, error) {
	seconds := 60
	if b.quick {
		seconds = 10
	}
	t, err := b.start([]string{"--class", "online"}, b.gpubench, "serve", "--rate", "25", "--kernels", "20",
		"--ns", "1000000", "--seconds", fmt.Sprint(seconds), "--seed", seed)
	if err != nil {
		return service{}, err
	}
	defer t.end()
	pids, begin, err := t.working(1)
	if err != nil {
		return service{}, err
	}
	lines, err := t.wait(b)
	if err != nil {
		return service{}, err
	}
	s := service{p99: lines[len(lines)-1].P99}
	if neighbour == nil {
		return s, nil
	}
	others, _, err := neighbour.working(1)
	if err != nil {
		return service{}, err
	}
	// The last moments are left out: the online process is gone from the record when it has ended.
	end := begin + uint64(seconds-1)*uint64(time.Second)
	own, err := b.oracle.used(b.ctx, pids, begin, end)
	if err != nil {
		return service{}, err
	}
	harvested, err := b.oracle.used(b.ctx, others, begin, end)
	if err != nil {
		return service{}, err
	}
	s.harvest = 100 * harvested / (float64(end-begin) - own)
	s.yields, err = b.yields(lines, others)
	return s, err
}

// yields is the neighbour's GPU time, in ms, from the first launch of each burst to its last answer.
func (b *bench) yields(lines []line, others []int) ([]float64, error) {
	var bursts []line
	for _, l := range lines {
		if l.First {
			bursts = append(bursts, l)
		} else if l.Arrival != 0 && len(bursts) > 0 {
			bursts[len(bursts)-1].Done = l.Done
		}
	}
	var all []float64
	for _, burst := range bursts {
		used, err := b.oracle.used(b.ctx, others, burst.Launched, burst.Done)
		if err != nil {
			return nil, err
		}
		all = append(all, used/1e6)
	}
	return all, nil
}

func quantile(list []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(float64(len(sorted)-1)*q)]
}
