package main

import (
	"math"

	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/model"
)

// virtualIDs are the figures of the laws alone: the same arbiter on a GPU and with tenants that only virtual time
// moves. What the figures of real time miss beyond these is the machine's, or the library's way of measuring.
const virtualIDs = "time.cap_mae_points.virtual time.cap_throughput_percent.virtual time.pair_error_points.virtual " +
	"time.pair_sum_percent.virtual time.weighted_error_points.virtual time.group_error_points.virtual " +
	"time.online_p99_ratio.virtual time.offline_harvest_percent.virtual time.yield_p99_ms.virtual"

// virtualRuns are runs on a noisy machine: processes lose their processor for up to 10 ms five times a second, event
// clocks of processes differ by up to 20 us, rounds of the arbiter come up to 50 ms late.
const virtualRuns = 5

func noisy(seed int) model.Options {
	return model.Options{
		Seed: uint64(seed), TickLate: 2 * model.Millisecond, StampError: 20 * model.Microsecond, CostError: 0.1,
		Stall: 10 * model.Millisecond, StallEvery: 200 * model.Millisecond,
	}
}

func native(seed int) model.Options {
	o := noisy(seed)
	o.Unlimited = true
	return o
}

var virtualLoads = []struct {
	name string
	model.Load
}{
	{"20 us", model.Load{Kernel: 20 * model.Microsecond}},
	{"1 ms", model.Load{Kernel: model.Millisecond}},
	{"50 ms", model.Load{Kernel: 50 * model.Millisecond}},
	{"20 us, synchronised", model.Load{Kernel: 20 * model.Microsecond, Sync: 1}},
	{"1 ms, synchronised", model.Load{Kernel: model.Millisecond, Sync: 1}},
}

func virtualWindow(l model.Load) uint64 {
	if l.Kernel >= 50*model.Millisecond {
		return 10 * model.Second
	}
	return model.Second
}

// parts are the percents of the GPU's time that tenants get in the next window.
func parts(m *model.Model, window uint64, tenants ...*model.Tenant) []float64 {
	got := make([]float64, len(tenants))
	for i, t := range tenants {
		got[i] = -float64(t.Own())
	}
	m.Run(window)
	for i, t := range tenants {
		got[i] = (got[i] + float64(t.Own())) / float64(window) * 100
	}
	return got
}

func fixedCores(cores int) arbiter.Terms { return arbiter.Terms{Policy: arbiter.Fixed, Cores: cores} }
func weightOf(weight int) arbiter.Terms {
	return arbiter.Terms{Policy: arbiter.Weighted, Weight: weight}
}

// virtual takes all figures of the virtual clock.
func virtual(*bench) ([]measurement.Row, error) {
	var rows []measurement.Row
	for _, load := range virtualLoads {
		rows = append(rows, virtualCaps(load.name, load.Load)...)
		rows = append(rows, virtualPairs(load.name, load.Load)...)
		if load.Kernel >= model.Millisecond || load.Sync == 0 {
			// Synchronised launches of 20 us cannot use four sevenths of a GPU.
			rows = append(rows, virtualWeights(load.name, load.Load))
		}
		rows = append(rows, virtualGroups(load.name, load.Load))
	}
	return append(rows, virtualOnline()...), nil
}

func virtualCaps(name string, load model.Load) []measurement.Row {
	var errs, through []float64
	for seed := range virtualRuns {
		free := model.New(native(seed))
		tenant := free.Add("a", fixedCores(100), load)
		free.Run(model.Second)
		alone := parts(free, virtualWindow(load), tenant)[0]
		off, got, due := 0.0, 0.0, 0.0
		caps := []int{10, 25, 50, 75, 90}
		for _, cores := range caps {
			m := model.New(noisy(seed))
			tenant := m.Add("a", fixedCores(cores), load)
			m.Run(model.Second)
			part, promise := parts(m, virtualWindow(load), tenant)[0], min(float64(cores), alone)
			off, got, due = off+math.Abs(part-promise), got+min(part, promise), due+promise
		}
		errs, through = append(errs, off/float64(len(caps))), append(through, got/due*100)
	}
	return []measurement.Row{
		row("time.cap_mae_points.virtual", name, "points", 1, measurement.Lower, errs),
		row("time.cap_throughput_percent.virtual", name, "%", 97, measurement.Higher, through),
	}
}

func virtualPairs(name string, load model.Load) []measurement.Row {
	var errs, sums []float64
	for seed := range virtualRuns {
		pair := func(o model.Options) []float64 {
			m := model.New(o)
			a, b := m.Add("a", fixedCores(30), load), m.Add("b", fixedCores(70), load)
			m.Run(model.Second)
			return parts(m, virtualWindow(load), a, b)
		}
		free := model.New(native(seed))
		tenant := free.Add("a", fixedCores(100), load)
		free.Run(model.Second)
		alone := parts(free, virtualWindow(load), tenant)[0]
		uncapped, got := pair(native(seed)), pair(noisy(seed))
		worst := 0.0
		for i, promise := range []float64{30, 70} {
			// More than what the case gets uncapped is no error as long as it was promised.
			low := min(promise, uncapped[i])
			worst = max(worst, low-got[i], got[i]-promise)
		}
		errs, sums = append(errs, worst), append(sums, (got[0]+got[1])/alone*100)
	}
	return []measurement.Row{
		row("time.pair_error_points.virtual", name, "points", 1.5, measurement.Lower, errs),
		row("time.pair_sum_percent.virtual", name, "%", 97, measurement.Higher, sums),
	}
}

// virtualWeights lets the share with weight 2 go idle and come back; windows begin 60 ms after each change.
func virtualWeights(name string, load model.Load) measurement.Row {
	var errs []float64
	for seed := range virtualRuns {
		m := model.New(noisy(seed))
		weights := []float64{1, 2, 4}
		var all []*model.Tenant
		for i, weight := range weights {
			all = append(all, m.Add(string(rune('a'+i)), weightOf(int(weight)), load))
		}
		m.Run(model.Second)
		worst := 0.0
		for _, idle := range []bool{true, false} {
			all[1].Rest(idle)
			m.Run(60 * model.Millisecond)
			sum := map[bool]float64{true: 5, false: 7}[idle]
			for i, part := range parts(m, virtualWindow(load), all...) {
				want := weights[i] / sum * 100
				if i == 1 && idle {
					want = 0
				}
				worst = max(worst, math.Abs(part-want))
			}
		}
		errs = append(errs, worst)
	}
	return row("time.weighted_error_points.virtual", name, "points", 2, measurement.Lower, errs)
}

func virtualGroups(name string, load model.Load) measurement.Row {
	var errs []float64
	load.Processes = 3
	for seed := range virtualRuns {
		m := model.New(noisy(seed))
		group := m.Add("group", fixedCores(40), load)
		m.Add("other", weightOf(1), model.Load{Kernel: model.Millisecond})
		m.Run(model.Second)
		errs = append(errs, math.Abs(parts(m, virtualWindow(load), group)[0]-40))
	}
	return row("time.group_error_points.virtual", name+", 3 processes at 40 %", "points", 1.5, measurement.Lower, errs)
}

// virtualOnline is 600 s in all of 25 requests/s of 20 launches of 1 ms, beside an offline loop of 200 us, against
// the same arrivals alone.
func virtualOnline() []measurement.Row {
	var ratios, harvests, yields []float64
	requests := model.Load{Kernel: model.Millisecond, Sync: 20, Requests: 25}
	const span = 600 * model.Second / virtualRuns
	for seed := range virtualRuns {
		alone, both := model.New(native(seed)), model.New(noisy(seed))
		quiet, online := alone.Add("online", weightOf(1), requests), both.Add("online", weightOf(1), requests)
		offline := both.Add("offline", arbiter.Terms{Weight: 1, Offline: true}, model.Load{Kernel: 200 * model.Microsecond})
		alone.Run(span)
		both.Run(span)
		ratios = append(ratios, float64(model.Percentile(online.Latencies(), 99))/float64(model.Percentile(quiet.Latencies(), 99)))
		harvests = append(harvests, float64(offline.Own())/float64(span-online.Own())*100)
		yields = append(yields, float64(model.Percentile(both.Yields(), 99))/float64(model.Millisecond))
	}
	return []measurement.Row{
		row("time.online_p99_ratio.virtual", "", "ratio", 1.05, measurement.Lower, ratios),
		row("time.offline_harvest_percent.virtual", "", "%", 80, measurement.Higher, harvests),
		row("time.yield_p99_ms.virtual", "", "ms", 2, measurement.Lower, yields),
	}
}
