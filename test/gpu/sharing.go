package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The cases here divide the GPU's time. What a tenant got is the work that it finished, a fixed amount a launch, as a
// part of what the same program finishes alone. That needs no clock that goes on while neighbours have the GPU.

func timeCases() []testCase {
	one, two := needs{share: true, quiet: true}, needs{share: true, quiet: true, together: true}
	return []testCase{
		{name: "time_cost", asks: "What does a cap that never binds cost a program that keeps the GPU busy?", needs: one,
			expected: "less than 3 % of its work", means: "measuring the GPU's time disturbs programs on this card", limit: 90 * time.Second, run: timeCost},
		{name: "time_caps", asks: "Does one tenant under a cap get the cap?", needs: one,
			expected: "within 5 points", means: "a cap holds badly on this card, mostly because its time stamps differ from what is expected",
			limit: 2 * time.Minute, run: timeCaps},
		{name: "time_pair", asks: "Do two tenants of 30 and 70 percent get as much?", needs: two,
			expected: "within 5 points, where time slices alone give halves", means: "shares of a busy GPU are not divided as they should",
			limit: 2 * time.Minute, run: timePair},
		{name: "time_online", asks: "Does offline work slow down an online service?", needs: two,
			expected: "its 99th percentile at most doubles, while offline work finishes something",
			means:    "class offline does not yield fast enough on this card", limit: 2 * time.Minute, run: timeOnline},
		{name: "mps", asks: "What do two programs of 30 and 70 percent of the threads get under the driver's multi-process service?",
			needs: two, expected: "figures to compare with; there is no wrong answer",
			means: "", limit: 90 * time.Second, run: underMPS},
	}
}

// load is a program that works until it is stopped and tells how far it is.
type load struct{ *follower }

// progress is one of its lines.
type progress struct {
	At       int64 `json:"at_ns"`
	Finished int64 `json:"finished"`
}

// rate is the launches finished per second of a stretch of its time, which starts when it is asked.
func (t *trial) rate(l load, stretch time.Duration) (float64, error) {
	parse := func(lines []string) (told []progress) {
		for _, line := range lines {
			var p progress
			if json.Unmarshal([]byte(line), &p) == nil && p.At > 0 {
				told = append(told, p)
			}
		}
		return told
	}
	skipLines := len(l.said())
	ok, err := t.until(4*stretch+30*time.Second, func() (bool, error) {
		select {
		case <-l.done:
			return false, fmt.Errorf("give the GPU work: %s", l.output("").say())
		default:
		}
		told := parse(l.said()[skipLines:])
		return len(told) > 2 && time.Duration(told[len(told)-1].At-told[0].At) >= stretch, nil
	})
	if err != nil {
		return 0, err
	}
	told := parse(l.said()[skipLines:])
	if !ok || len(told) < 3 {
		return 0, errors.New("give the GPU work: nothing was finished")
	}
	first, last := told[0], told[len(told)-1]
	return float64(last.Finished-first.Finished) * 1e9 / float64(last.At-first.At), nil
}

// grid is as many blocks as any GPU holds. On the simulated one a block is as good as many.
func (t *trial) grid() string {
	if t.simgpu != "" {
		return "1"
	}
	return "4096"
}

// loops says how many turns of the fixed work, on the whole grid, take about a millisecond here.
func (t *trial) loops() (int, error) {
	const turns, count = 20000, 20
	var probe struct {
		MS float64 `json:"event_ms"`
	}
	for range 2 { // the first warms the GPU up
		if err := t.ask(&probe, t.natively(), t.gpubench(), "spin", "--loops", fmt.Sprint(turns), "--grid", t.grid(), "--count", fmt.Sprint(count)); err != nil {
			return 0, err
		}
	}
	if probe.MS <= 0.05 {
		return 0, fmt.Errorf("give the GPU work: %d turns took %.3f ms", turns*count, probe.MS)
	}
	return max(1, int(turns*count/probe.MS)), nil
}

// work is gpubench's command line: kernels of about 1 ms.
func (t *trial) work(loops int) []string {
	return []string{t.gpubench(), "load", "--loops", fmt.Sprint(loops), "--grid", t.grid(), "--sync", "8", "--seconds", "300"}
}

// tenant is a command at a place.
type tenant struct {
	at      place
	command []string
	vars    []string
}

// rates starts all tenants at once and returns what each finishes per second once all work.
func (t *trial) rates(tenants ...tenant) ([]float64, error) {
	stretch := 3 * time.Second
	switch {
	case t.thorough:
		stretch = 8 * time.Second
	case t.simgpu != "":
		stretch = time.Second / 2
	}
	var loads []load
	defer func() {
		for _, l := range loads {
			t.end(l.program)
		}
	}()
	for _, tenant := range tenants {
		t.vars = tenant.vars
		f, err := t.follow(tenant.at, tenant.command...)
		t.vars = nil
		if err != nil {
			return nil, err
		}
		loads = append(loads, load{f})
	}
	for _, l := range loads {
		if _, err := t.await(l.follower, "at_ns"); err != nil {
			return nil, err
		}
	}
	found, faults := make([]float64, len(loads)), make(chan error, len(loads))
	for i, l := range loads {
		go func() {
			var err error
			found[i], err = t.rate(l, stretch)
			faults <- err
		}()
	}
	var all error
	for range loads {
		all = errors.Join(all, <-faults)
	}
	return found, all
}

// alone is the rate of one tenant outside any share.
func (t *trial) alone(command []string) (float64, error) {
	found, err := t.rates(tenant{at: t.natively(), command: command})
	if err != nil {
		return 0, err
	}
	return found[0], nil
}

// capped is a share's place under a cap. Two of them fit on the GPU.
func (t *trial) capped(cores int) place {
	return t.share(flags{memory: t.size() / 2, cores: cores, policy: "fixed"})
}

// percentOf runs tenants between two runs of one alone, and returns their parts of its work. Where the two differ, something
// else disturbed the measurement, which is tried again.
func (t *trial) percentOf(command []string, tenants ...tenant) ([]float64, error) {
	var before, after float64
	for range 3 {
		var err error
		if before, err = t.alone(command); err != nil {
			return nil, err
		}
		found, err := t.rates(tenants...)
		if err != nil {
			return nil, err
		}
		if after, err = t.alone(command); err != nil {
			return nil, err
		}
		if steady(before, after) {
			for i := range found {
				found[i] *= 200 / (before + after)
			}
			return found, nil
		}
	}
	return nil, skip("something else disturbs the measurement: alone the program finished %.0f launches a second before it and %.0f after it", before, after)
}

// steady reports whether two rates differ by a tenth at most.
func steady(a, b float64) bool { return max(a, b) <= 1.1*min(a, b) }

// ready gives the work of this card, or why there is none.
func (t *trial) ready() ([]string, error) {
	loops, err := t.loops()
	return t.work(loops), err
}

func timeCost(t *trial) error {
	command, err := t.ready()
	if err != nil {
		return err
	}
	rounds := 2
	if t.thorough {
		rounds = 5
	}
	var lost []float64
	for range rounds {
		got, err := t.percentOf(command, tenant{at: t.capped(100), command: command})
		if err != nil {
			return err
		}
		t.note("%.2f %% of the work done alone", got[0])
		lost = append(lost, 100-got[0])
	}
	if m := t.measured("gpu.time.launch_added_percent", "%", goal(1), lost); m > 3 {
		return differ("%.1f %% less work", m)
	}
	return nil
}

func timeCaps(t *trial) error {
	command, err := t.ready()
	if err != nil {
		return err
	}
	caps := []int{25, 75}
	if t.thorough {
		caps = []int{10, 25, 50, 75, 90}
	}
	var errs []float64
	for _, cores := range caps {
		got, err := t.percentOf(command, tenant{at: t.capped(cores), command: command})
		if err != nil {
			return err
		}
		t.note("cap %d %%: %.1f %% of the work done alone", cores, got[0])
		errs = append(errs, max(got[0]-float64(cores), float64(cores)-got[0]))
	}
	t.measured("gpu.time.cap_mae_points", "points", goal(1), errs)
	if worst := slices.Max(errs); worst > 5 {
		return differ("%.1f points from the cap", worst)
	}
	return nil
}

func timePair(t *trial) error {
	command, err := t.ready()
	if err != nil {
		return err
	}
	native := tenant{at: t.natively(), command: command}
	plain, err := t.percentOf(command, native, native)
	if err != nil {
		return err
	}
	t.note("time slices alone: %.1f : %.1f %%", plain[0], plain[1])
	if sum := plain[0] + plain[1]; sum > 110 {
		return skip("alone the program does not keep the GPU busy: two of them finish %.0f %% of its work; the processor may be busy", sum)
	}
	rounds := 1
	if t.thorough {
		rounds = 5
	}
	var errs, sums []float64
	for range rounds {
		got, err := t.percentOf(command, tenant{at: t.capped(30), command: command}, tenant{at: t.capped(70), command: command})
		if err != nil {
			return err
		}
		t.note("30 : 70: %.1f : %.1f %%", got[0], got[1])
		errs = append(errs, max(got[0]-30, 30-got[0], got[1]-70, 70-got[1]))
		sums = append(sums, got[0]+got[1])
	}
	t.gained("gpu.time.pair_sum_percent", "%", goal(97), sums)
	if m := t.measured("gpu.time.pair_error_points", "points", goal(1.5), errs); m > 5 {
		return differ("%.1f points from 30 : 70", m)
	}
	return nil
}

func timeOnline(t *trial) error {
	loops, err := t.loops()
	if err != nil {
		return err
	}
	offline := t.work(max(1, loops/5))
	whole, err := t.alone(offline)
	if err != nil {
		return err
	}
	seconds := "8"
	switch {
	case t.thorough:
		seconds = "60"
	case t.simgpu != "":
		seconds = "2"
	}
	service := []string{t.gpubench(), "serve", "--rate", "25", "--kernels", "20", "--loops", fmt.Sprint(loops), "--grid", t.grid(), "--seconds", seconds}
	return t.beside("gpu.time.online", service, offline, whole)
}

// beside runs a service alone, and then with work that yields to it and with work that does not.
func (t *trial) beside(id string, service, offline []string, whole float64) error {
	online := t.share(flags{memory: t.size(), class: "online"}) // two such shares fit, see size

	quiet, err := t.served(online, service)
	if err != nil {
		return err
	}
	ours, rate, err := t.servedBeside(online, service, tenant{at: t.share(flags{memory: t.size(), class: "offline"}), command: offline})
	if err != nil {
		return err
	}
	plain, plainRate, err := t.servedBeside(t.natively(), service, tenant{at: t.natively(), command: offline})
	if err != nil {
		return err
	}
	t.note("99th percentile alone %.1f ms; beside offline work %.1f ms, which gets %.0f %% of what it gets alone; under time slices alone %.1f ms and %.0f %%",
		quiet, ours, 100*rate/whole, plain, 100*plainRate/whole)
	t.measured(id+"_p99_ratio", "ratio", goal(1.05), []float64{ours / quiet})
	t.gained(id+"_harvest_percent", "%", nil, []float64{100 * rate / whole})
	if ours > 2*quiet || rate <= 0 {
		return differ("%.1f ms against %.1f ms; offline work gets %.1f %%", ours, quiet, 100*rate/whole)
	}
	return nil
}

func (t *trial) served(at place, service []string) (p99 float64, err error) {
	var answer struct {
		P99 float64 `json:"p99_ms"`
	}
	err = t.ask(&answer, at, service...)
	if err == nil && answer.P99 <= 0 {
		err = errors.New("serve requests: nothing was measured")
	}
	return answer.P99, err
}

func (t *trial) servedBeside(at place, service []string, other tenant) (p99, rate float64, err error) {
	f, err := t.follow(other.at, other.command...)
	if err != nil {
		return 0, 0, err
	}
	defer t.end(f.program)
	if _, err := t.await(f, "at_ns"); err != nil {
		return 0, 0, err
	}
	first := len(f.said())
	if p99, err = t.served(at, service); err != nil {
		return 0, 0, err
	}
	var begin, end progress
	for i, line := range f.said()[first:] {
		var p progress
		if json.Unmarshal([]byte(line), &p) == nil && p.At > 0 {
			if end = p; i == 0 || begin.At == 0 {
				begin = p
			}
		}
	}
	if end.At > begin.At {
		rate = float64(end.Finished-begin.Finished) * 1e9 / float64(end.At-begin.At)
	}
	return p99, rate, nil
}
