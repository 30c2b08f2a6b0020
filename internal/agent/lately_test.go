package agent

import (
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// What a share did in the last ten minutes is told of time that was counted, and no more than passed.
func TestLately(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	minute := uint64(time.Minute)
	samples := func(ago ...int) (all []sample) {
		for _, m := range ago {
			all = append(all, sample{
				at: now.Add(-time.Duration(m) * time.Minute), divided: []bool{true},
				times: []control.Lately{{Used: 100 * minute, HeldBack: 10 * minute, Copied: 5 * minute, Awaited: 3 * minute}},
			})
		}
		return all
	}
	total := func() *control.Time {
		return &control.Time{Limited: true, Used: 104 * minute, HeldBackTotal: 11 * minute, Copied: 5*minute + 1, Awaited: 90 * minute}
	}
	alone := samples(10, 9)
	alone[1].divided[0] = false
	for name, c := range map[string]struct {
		age     time.Duration
		samples []sample
		edit    func(*control.Time)
		want    *control.Lately
	}{
		"long":           {time.Hour, samples(10, 5), nil, &control.Lately{Span: 10 * time.Minute, Used: 4 * minute, HeldBack: minute, Copied: 1, Awaited: 10 * minute}},
		"new":            {5 * time.Minute, samples(4), nil, &control.Lately{Span: 5 * time.Minute, Used: 5 * minute, HeldBack: 5 * minute, Copied: 5 * minute, Awaited: 5 * minute}},
		"just begun":     {time.Millisecond, nil, nil, nil},
		"of an earlier":  {time.Hour, nil, nil, nil},
		"alone":          {time.Hour, samples(10), func(t *control.Time) { t.Limited = false }, nil},
		"alone meantime": {time.Hour, alone, nil, nil},
		"began anew":     {time.Hour, samples(10), func(t *control.Time) { *t = control.Time{Limited: true} }, &control.Lately{Span: 10 * time.Minute}},
	} {
		one, all := &tenant{record: record{Created: now.Add(-c.age)}, samples: c.samples}, total()
		if c.edit != nil {
			c.edit(all)
		}
		got := one.latelyOf(0, all, now)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// Samples are taken once a minute, and kept for ten.
func TestSamples(t *testing.T) {
	n, c := newNode(t), newClock()
	settings := n.settings(n.backend)
	settings.Now = c.Now
	r := n.startAs(settings)
	n.grant(r, n.asker(0), ask(8*gib))
	samples := func() int {
		one := r.all()[0]
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(one.samples)
	}
	if r.sampleLately(); samples() != 0 {
		t.Error("it is sampled before it is known whether its GPU's time is divided")
	}
	for range 1800 {
		c.move(time.Second)
		r.sampleLately()
	}
	one := r.all()[0]
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(one.samples) != 11 || len(one.samples[0].times) != 1 {
		t.Errorf("%d samples", len(one.samples))
	}
}
