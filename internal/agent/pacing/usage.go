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
}

type usageEntry struct{ at, total uint64 }

// start counts what was used before this agent started: all that was charged, less
// what was given back.
func (l *usageLog) start(b *page.Bucket, correction int64) {
	if used := int64(b.Charged) - correction; used > 0 {
		l.total = uint64(used)
	}
}

func (l *usageLog) add(now, own uint64) {
	l.total += own
	last := (l.next + usageSteps - 1) % usageSteps
	if now-l.entries[last].at < uint64(usageStep) && l.entries[last].at != 0 {
		return
	}
	l.entries[l.next] = usageEntry{now, l.total}
	l.next = (l.next + 1) % usageSteps
}

// percent is the part of the GPU's time over the last second, or since the
// share is known.
func (l *usageLog) percent(now uint64) float64 {
	oldest := usageEntry{at: now, total: l.total}
	for _, e := range l.entries {
		if e.at != 0 && e.at < oldest.at {
			oldest = e
		}
	}
	if now-oldest.at < uint64(usageStep) {
		return 0
	}
	return min(100*float64(l.total-oldest.total)/float64(now-oldest.at), 100)
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
	now := l.clock()
	times := make([]control.Time, 0, len(t.shares))
	for _, s := range t.shares {
		one := control.Time{
			Limited: s.limited(), Used: s.usage.total, Charged: s.bucket.Charged, Launches: s.bucket.Launches,
			Waited: s.bucket.Waited, HeldBackTotal: s.bucket.HeldBack, Yielded: s.bucket.Yielded, HeldBackPercent: s.held.log.percent(now),
			Overdrawn: s.bucket.Overdrawn, Fault: s.complaint(now),
			HeldBack: s.limited() && s.bucket.Wanted != 0 && now-min(now, s.bucket.Wanted) < uint64(time.Second),
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
