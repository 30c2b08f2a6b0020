package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// fit is a bench on a GPU that nothing is wrong with.
func fit() *bench {
	return &bench{gpu: gpu{UUID: "GPU-a", Free: 8 * gib}}
}

func TestOutcomes(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	const late = "no answer in time"
	for name, c := range map[string]struct {
		within context.Context
		run    func(t *trial) error
		want   string
	}{
		"nothing wrong":     {t.Context(), func(*trial) error { return nil }, passed},
		"skipped":           {t.Context(), func(*trial) error { return fmt.Errorf("try: %w", skip("no %s", "x")) }, "skipped: no x"},
		"another answer":    {t.Context(), func(*trial) error { return differ("b") }, "another answer: b"},
		"a fault":           {t.Context(), func(*trial) error { return errors.New("c") }, "not answered: c"},
		late:                {t.Context(), func(t *trial) error { <-t.ctx.Done(); return context.Cause(t.ctx) }, "not answered: no answer in 1ms"},
		"the whole is over": {over, func(*trial) error { return nil }, "skipped: the time for all cases was over"},
		"interrupted":       {over, func(t *trial) error { return t.ctx.Err() }, "skipped: the time for all cases was over"},
	} {
		limit := time.Minute
		if name == late {
			limit = time.Millisecond
		}
		o := fit().answer(c.within, testCase{name: "x", means: "m", limit: limit, run: c.run})
		if !strings.HasPrefix(o.line(), c.want) {
			t.Errorf("%s: %s, want %s", name, o.line(), c.want)
		}
		if (o.Means != "") != (o.Outcome == differed) {
			t.Errorf("%s: it would mean %q", name, o.Means)
		}
	}
}

// A program that cannot be ended stops everything after it.
func TestStuckInTheDriver(t *testing.T) {
	b := fit()
	b.answer(t.Context(), testCase{limit: time.Minute, run: func(*trial) error { return fmt.Errorf("gpubench: %w", errStuck) }})
	o := b.answer(t.Context(), testCase{limit: time.Minute, run: func(*trial) error { return nil }})
	if o.Outcome != skipped || !strings.Contains(o.Why, "cannot be ended") {
		t.Errorf("the next case: %s", o.line())
	}
}

func TestWhatIsLacking(t *testing.T) {
	all := needs{share: true, together: true}
	for name, c := range map[string]struct {
		change func(b *bench)
		needs  needs
		why    string
	}{
		"nothing":            {func(*bench) {}, all, ""},
		"a GPU":              {func(b *bench) { b.unable = "there is no GPU" }, needs{}, "there is no GPU"},
		"room":               {func(b *bench) { b.gpu.Free = 2*gib - 1 }, all, "the GPU has only 2.00 GiB free"},
		"room, not needed":   {func(b *bench) { b.gpu.Free = 0 }, needs{}, ""},
		"shares":             {func(b *bench) { b.noShare = "no share can be made" }, all, "no share can be made"},
		"two at once":        {func(b *bench) { b.gpu.Mode = modeExclusive }, all, "the GPU is in compute mode exclusive-process"},
		"one is enough":      {func(b *bench) { b.gpu.Mode = modeExclusive }, needs{share: true}, ""},
		"an obedient driver": {func(b *bench) { b.stuck = true }, needs{}, "an earlier program waits in the driver and cannot be ended"},
	} {
		b := fit()
		c.change(b)
		err := (&trial{bench: b, ctx: t.Context()}).lacks(c.needs)
		if why := fmt.Sprint(err); (err == nil) != (c.why == "") || err != nil && why != c.why {
			t.Errorf("%s: %v, want %q", name, err, c.why)
		}
	}
}

// That no share can be made is a fault of Divvy's until somebody finds another reason: nothing passes, and it is not skipped.
func TestNoShareIsAFault(t *testing.T) {
	b := fit()
	b.noShare = "no share can be made: exit status 125"
	o := b.answer(t.Context(), testCase{needs: needs{share: true}, limit: time.Minute, run: func(*trial) error { return nil }})
	if o.line() != "not answered: "+b.noShare {
		t.Errorf("%s", o.line())
	}
}

func TestUnfitGPUs(t *testing.T) {
	for name, c := range map[string]struct {
		gpu  gpu
		want string
	}{
		"fit":        {gpu{UUID: "GPU-a"}, ""},
		"lost":       {gpu{UUID: "GPU-a", Code: 15}, "does not answer NVML, which says 15, the GPU is lost"},
		"MIG":        {gpu{UUID: "GPU-a", MIG: true}, "is in MIG mode: mig_share tries one of its instances, the other cases a whole GPU"},
		"prohibited": {gpu{UUID: "GPU-a", Mode: modeProhibited}, "is in compute mode prohibited"},
		"taken":      {gpu{UUID: "GPU-a", Mode: modeExclusive, Processes: []process{{1, 50}}}, "is in compute mode exclusive-process, and another process has it"},
		"not taken":  {gpu{UUID: "GPU-a", Mode: modeExclusive}, ""},
		"hidden":     {gpu{UUID: "GPU-b"}, "is not shown by CUDA to this process"},
	} {
		if got := unfit(c.gpu, []string{"GPU-a"}); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// What a share is compared with is the driver's figure of what came since, or the whole GPU's change.
func TestTruth(t *testing.T) {
	before := gpu{Used: 100, Processes: []process{{1, 50}}}
	for name, c := range map[string]struct {
		after gpu
		want  uint64
	}{
		"told":           {gpu{Used: 999, Processes: []process{{1, 70}, {2, 30}}}, 30},
		"not told":       {gpu{Used: 140, Processes: []process{{1, -1}, {2, -1}}}, 40},
		"not even shown": {gpu{Used: 160}, 60},
		"less than ever": {gpu{Used: 20}, 0},
	} {
		if got, _ := truth(before, c.after); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestMedianOfRuns(t *testing.T) {
	tr := &trial{}
	tr.measured("a", "ms", nil, []float64{3, 1, 8})
	tr.gained("b", "%", goal(9), []float64{3, 1, 8, 4})
	if a, b := tr.rows[0], tr.rows[1]; a.Value != 3 || a.Worst != 8 || b.Value != 3.5 || b.Worst != 1 || b.Runs != 4 {
		t.Errorf("rows are %+v", tr.rows)
	}
}

// Each case is told apart by its name, and says what it asks and expects, and what else would mean.
func TestCasesSayWhatTheyMean(t *testing.T) {
	seen := map[string]bool{}
	noWrong := []string{"aliases", "mps"}
	for _, c := range choose(everyCase) {
		if seen[c.name] || c.asks == "" || c.expected == "" || c.limit == 0 || c.run == nil {
			t.Errorf("%s: %+v", c.name, c)
		}
		if seen[c.name] = true; c.means == "" && c.name != noWrong[0] && c.name != noWrong[1] {
			t.Errorf("%s does not say what another answer would mean", c.name)
		}
	}
}

func TestSteadyRates(t *testing.T) {
	for _, c := range []struct {
		a, b float64
		want bool
	}{{1000, 1000, true}, {1000, 1099, true}, {1000, 910, true}, {1000, 1101, false}, {900, 1000, false}, {0, 1, false}} {
		if got := steady(c.a, c.b); got != c.want {
			t.Errorf("%g and %g: %v", c.a, c.b, got)
		}
	}
}
