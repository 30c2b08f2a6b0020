package model

import (
	"math"
	"slices"

	"github.com/divvy-gpu/divvy/internal/arbiter"
)

// governor is the agent's loop over the laws.
type governor struct {
	m      *Model
	law    arbiter.Law
	replay arbiter.Replay
	watch  arbiter.Watch
	back   bool
	yields []uint64 // offline GPU time after each first launch of an online burst
	burst  bool
}

// round reads what tenants tell and writes their budgets.
func (g *governor) round() {
	m := g.m
	late := m.upTo(m.TickLate)
	if m.TickLate > 0 && m.random.IntN(50) == 0 {
		late = m.upTo(50 * Millisecond)
	}
	m.after(m.Tick+late, g.round)
	if m.ArbiterDiesAt != 0 && m.now >= m.ArbiterDiesAt && (m.ArbiterBackAt == 0 || m.now < m.ArbiterBackAt) {
		return
	}
	if m.ArbiterBackAt != 0 && m.now >= m.ArbiterBackAt && !g.back {
		g.back = true
		g.law, g.replay, g.watch = arbiter.Law{}, arbiter.Replay{}, arbiter.Watch{}
	}
	g.replay.Slice = m.Slice
	works := m.works()
	usage := g.replay.Advance(m.now, works)
	shares := make([]arbiter.Share, len(m.tenants))
	for i, t := range m.tenants {
		shares[i] = arbiter.Share{Key: t.Key, Terms: t.Terms, Report: g.report(t, usage[t.Key])}
		used := usage[t.Key]
		g.watch.Tell(m.now, t.Key, arbiter.Told{
			Own: used.Told, Lost: used.Busy - min(used.Measured, used.Busy), Rate: min(t.budget.given.Rate, arbiter.Whole),
			Open: arbiter.OldestOpen(t.Key, works, used.Fault),
		})
	}
	for i, budget := range g.law.Divide(m.now, shares) {
		t := m.tenants[i]
		t.budget.given, t.budget.tick = budget, m.now
		switch {
		case !budget.Limited:
			t.limited = 0
		case t.limited == 0:
			t.limited = m.now
		}
	}
}

// report reads a share's bucket, and tells it how much longer or shorter its work took than was charged.
func (g *governor) report(t *Tenant, u arbiter.Usage) arbiter.Report {
	b := &t.budget
	if t.ignored {
		u.Own = uint64(t.busy * float64(g.m.now-t.counted))
	}
	t.counted = g.m.now
	b.correction += int64(u.Charged) - int64(u.Own)
	t.stretch.Add(u)
	b.stretch = float64(t.stretch.PPM()) / arbiter.Whole
	active := u.Own > 0 || t.bucket.launches != t.report.launches
	for _, p := range t.processes {
		active = active || p.openSince != 0 && t.Lie == Truth
	}
	r := arbiter.Report{
		Own: u.Own, Busy: u.Busy,
		Wanted: t.bucket.wanted != t.report.wanted, Active: active,
	}
	t.report = reported{launches: t.bucket.launches, wanted: t.bucket.wanted}
	return r
}

func (m *Model) works() []arbiter.Work {
	var works []arbiter.Work
	for _, t := range m.tenants {
		for _, p := range t.processes {
			w := arbiter.Work{
				Key: p.key, Share: t.Key, Count: p.count, Intervals: slices.Clone(p.ring),
				OpenSince: p.openSince, OpenUntil: p.openUntil, Unmeasured: p.unmeasured,
			}
			t.Lie.distort(&w, m.now)
			works = append(works, w)
		}
	}
	return works
}

// distort is what a liar tells instead.
func (l Lie) distort(w *arbiter.Work, now uint64) {
	switch l {
	case Truth, Greedy:
	case Silent:
		*w = arbiter.Work{Key: w.Key, Share: w.Share}
	case Absurd:
		w.Count += uint32(now/Millisecond) * 7
		w.Unmeasured = now * 1000
		w.OpenSince, w.OpenUntil = 1, math.MaxUint64
	case Claimed:
		const length = 20 * Millisecond
		end := now - now%length
		w.Count, w.Intervals, w.OpenSince = uint32(now/length), []arbiter.Interval{{Begin: end - length, End: end, Charged: length}}, 0
	case Backward:
		for i := range w.Intervals {
			w.Intervals[i].Begin, w.Intervals[i].End = w.Intervals[i].End, w.Intervals[i].Begin
		}
	}
}

// sample is the driver's figure: whole percents over a sixth of a second, told 300 ms later.
func (g *governor) sample() {
	m := g.m
	const period = Second / 6
	m.after(period, g.sample)
	m.gpu.account()
	busy, all := make([]float64, len(m.tenants)), 0.0
	for i, t := range m.tenants {
		busy[i] = min(math.Round(float64(t.own-t.sampled)/float64(period)*100)/100, 1)
		all += busy[i]
		t.sampled = t.own
	}
	at := m.now
	for i, t := range m.tenants {
		m.after(300*Millisecond, func() {
			if slices.Contains(m.tenants, t) && t.limited != 0 && at > t.limited+Second/2 {
				t.verdict = g.watch.Observe(t.Key, arbiter.Sample{At: at, Busy: busy[i], Count: 1, Others: all - busy[i]})
				g.replay.Assume(t.Key, t.verdict != arbiter.Honest)
				t.busy, t.ignored = busy[i], g.watch.Overtold(t.Key)
				g.replay.Disregard(t.Key, t.ignored)
			}
		})
	}
}

// onlineBusy is whether a pulse beats: some online share has work under way.
func (m *Model) onlineBusy() bool {
	for _, t := range m.tenants {
		if t.Offline {
			continue
		}
		for _, p := range t.processes {
			if len(p.work) > 0 || len(p.arrivals) > 0 {
				return true
			}
		}
	}
	return false
}

// offlineRan notes offline GPU time while an online share has work.
func (m *Model) offlineRan(span uint64) {
	g := &m.arbiter
	if !m.onlineBusy() {
		g.burst = false
		return
	}
	if !g.burst {
		g.burst = true
		g.yields = append(g.yields, 0)
	}
	g.yields[len(g.yields)-1] += span
}

// Yields is the offline GPU time in each online burst that met offline work.
func (m *Model) Yields() []uint64 { return m.arbiter.yields }
