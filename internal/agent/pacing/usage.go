package pacing

import (
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/page"
)

const (
	// usageStep is between two entries of a usage log, which spans a second.
	usageStep  = 100 * time.Millisecond
	usageSteps = 11
)

// usageLog keeps a share's GPU time for listings.
type usageLog struct {
	total   uint64 // own ns since the share began
	entries [usageSteps]usageEntry
	next    int
	right   right
}

type usageEntry struct {
	at, total uint64
	given     float64
}

// right is what of the GPU's time a share may use, added up.
type right struct {
	at         uint64  // up to when
	entitled   float64 // ns of its base: its part when all want theirs
	given      float64 // ns of its rate: with what others leave
	base, rate uint32  // since at, in [page.Whole]ths
}

// until is the same at a moment.
func (r right) until(now uint64) right {
	if r.at != 0 && now > r.at {
		passed := float64(now - r.at)
		r.entitled += passed * float64(r.base) / page.Whole
		r.given += passed * float64(r.rate) / page.Whole
	}
	r.at = max(r.at, now)
	return r
}

// grant says what the share may use from now on.
func (l *usageLog) grant(now uint64, b *page.Budget) {
	l.right = l.right.until(now)
	l.right.base, l.right.rate = b.Base, b.Rate
	if b.Flags&page.BudgetLimited == 0 { // it is alone
		l.right.base, l.right.rate = page.Whole, page.Whole
	}
}

func (l *usageLog) add(now, own uint64) {
	l.total += own
	last := (l.next + usageSteps - 1) % usageSteps
	if now-l.entries[last].at < uint64(usageStep) && l.entries[last].at != 0 {
		return
	}
	l.entries[l.next] = usageEntry{now, l.total, l.right.until(now).given}
	l.next = (l.next + 1) % usageSteps
}

// percent is the part of the GPU's time over the last second, or since the
// share is known.
func (l *usageLog) percent(now uint64) float64 {
	oldest := l.oldest(now)
	if now-oldest.at < uint64(usageStep) {
		return 0
	}
	return min(100*float64(l.total-oldest.total)/float64(now-oldest.at), 100)
}

// oldest is the first entry that is kept, or the present.
func (l *usageLog) oldest(now uint64) usageEntry {
	oldest := usageEntry{now, l.total, l.right.until(now).given}
	for _, e := range l.entries {
		if e.at != 0 && e.at < oldest.at {
			oldest = e
		}
	}
	return oldest
}

// strays is by which part of the GPU's time, 0 to 1, the use of the last second differs from what was given; nil where
// less of it is known than an entry.
func (l *usageLog) strays(now uint64) *float64 {
	oldest := l.oldest(now)
	if now-oldest.at < uint64(usageStep) {
		return nil
	}
	used, given := float64(l.total-oldest.total), l.right.until(now).given-oldest.given
	return new((used - given) / float64(now-oldest.at))
}

// heldLog keeps for how long a share was held back.
type heldLog struct {
	log  usageLog
	told uint64 // ns, as the page had it last
	at   uint64 // when that was; 0 before the first time
}

// add takes up what the page tells. Of a span it believes no more than the span.
func (l *heldLog) add(now, told uint64) {
	grown := told - min(told, l.told)
	if l.at == 0 {
		grown = 0 // what was before this agent
	}
	l.log.add(now, min(grown, now-min(now, l.at)))
	l.told, l.at = told, now
}

// Times are a tenant's GPU times, one entry per share; nil where the arbiter
// does not know the tenant.
func (l *loop) Times(tenant string) []control.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenants[tenant]
	if t == nil {
		return nil
	}
	now, wall := l.clock(), time.Now()
	times := make([]control.Time, 0, len(t.shares))
	for _, s := range t.shares {
		one := control.Time{
			Limited: s.limited(), Used: s.shown.used, Charged: s.bucket.Charged, Launches: s.bucket.Launches,
			Waited: s.bucket.Waited, HeldBackTotal: s.bucket.HeldBack, Yielded: s.bucket.Yielded, HeldBackPercent: s.held.log.percent(now),
			Overdrawn: s.bucket.Overdrawn, Fault: s.complaint(now),
			HeldBack: s.limited() && s.bucket.Wanted != 0 && now-min(now, s.bucket.Wanted) < uint64(time.Second),
			Entitled: s.shown.entitled,
		}
		if until := s.knownTo(l.gpus[s.uuid]); until != 0 {
			one.UsedUntil = wall.Add(-time.Duration(now - min(until, now)))
		}
		if s.limited() && s.bill.inherited {
			one.Inherited = s.bill.owed()
		}
		if one.HeldBack {
			one.Error = s.usage.strays(now)
		}
		switch {
		case s.limited():
			one.Percent = new(s.usage.percent(now))
		case s.misuse.told != 0 && now-s.misuse.told < uint64(2*time.Second):
			// Nothing counts the work of a share without a limit but the driver.
			one.Percent = new(100 * s.misuse.busy)
		}
		times = append(times, one)
	}
	return times
}

// knownTo is up to when its GPU time is counted, 0 where that is not known.
func (s *shareTime) knownTo(g *gpuTime) uint64 {
	switch {
	case s.driven.from != 0:
		return s.driven.from
	case g == nil:
		return 0
	}
	return g.replay.Played()
}
