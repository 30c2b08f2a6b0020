package agent

import (
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

const (
	// latelyStep is the time between two samples, and latelySpan of how long a time they tell.
	latelyStep = time.Minute
	latelySpan = 10 * time.Minute
	// latelyFirst is the age at which a tenant is sampled first. When it begins, it is not decided yet whether its GPU's time is
	// divided, and it would look as if it had the GPU alone.
	latelyFirst = 2 * time.Second
)

// sample is what the shares of a tenant had done at a time, since they began.
type sample struct {
	at    time.Time
	times []control.Lately // without spans
	// divided says of which shares time was counted then.
	divided []bool
}

// sampleLately remembers once in a minute what shares have done so far.
func (a *Agent) sampleLately() {
	now := a.config.Now()
	for _, t := range a.all() {
		a.mu.Lock()
		n := len(t.samples)
		due := n == 0 && now.Sub(t.Created) >= latelyFirst || n > 0 && (now.Sub(t.samples[n-1].at) >= latelyStep || now.Before(t.samples[n-1].at))
		a.mu.Unlock()
		if !due {
			continue
		}
		v := a.describe(t)
		one := sample{at: now}
		for i := range v.Shares {
			of := v.Shares[i].Time
			one.times, one.divided = append(one.times, totalsOf(of)), append(one.divided, of != nil && of.Limited)
		}
		a.mu.Lock()
		t.samples = append(t.samples, one)
		for len(t.samples) > 0 && (now.Sub(t.samples[0].at) > latelySpan || t.samples[0].at.After(now)) {
			t.samples = t.samples[1:]
		}
		a.mu.Unlock()
	}
}

func totalsOf(t *control.Time) (l control.Lately) {
	if t != nil {
		l = control.Lately{Used: t.Used, HeldBack: t.HeldBackTotal, Copied: t.Copied, Awaited: t.Awaited}
	}
	return l
}

// latelyOf is what a share did in the last minutes, nil where that is not known: what it did while it had its GPU alone is not
// counted. Agent.mu is held.
func (t *tenant) latelyOf(share int, total *control.Time, now time.Time) *control.Lately {
	if !total.Limited || slices.ContainsFunc(t.samples, func(s sample) bool { return share >= len(s.divided) || !s.divided[share] }) {
		return nil
	}
	from, before := t.Created, control.Lately{}
	if now.Sub(t.Created) > latelySpan {
		if len(t.samples) == 0 {
			return nil
		}
		from, before = t.samples[0].at, t.samples[0].times[share]
	}
	l := control.Lately{Span: now.Sub(from)}
	if l.Span < time.Second {
		return nil
	}
	grown := func(now, before uint64) uint64 { return min(now-min(now, before), uint64(l.Span)) }
	l.Used, l.HeldBack = grown(total.Used, before.Used), grown(total.HeldBackTotal, before.HeldBack)
	l.Copied, l.Awaited = grown(total.Copied, before.Copied), grown(total.Awaited, before.Awaited)
	return &l
}
