package pacing

import (
	"math"
	"time"

	"github.com/divvy-gpu/divvy/internal/page"
)

// Debt is what a share owes at its end.
type Debt struct {
	// Owed is in ns of GPU time: what its bucket lacks of that of a new share.
	Owed uint64
	// Rate is what would have paid it, in parts per million of real time.
	Rate uint32
}

// unmeasuredMost bounds what a launch that was never measured counts for: by then the
// library would have let the next one go.
const unmeasuredMost = uint64(5 * time.Second)

// Settle returns what the shares of a tenant owe of which no process is left, one entry
// for each share; nil where its pages cannot be read.
func (l *loop) Settle(m Member) []Debt {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenants[m.ID]
	if t == nil {
		var err error
		if t, err = openTenant(&m); err != nil {
			return nil
		}
		defer t.close()
	}
	now := l.clock()
	debts := make([]Debt, len(t.shares))
	for d, s := range t.shares {
		times, err := t.time.Times.Read(d)
		if err != nil {
			return nil
		}
		debts[d] = debtOf(now, times, &s.budget)
	}
	return debts
}

// debtOf is what a share owes whose processes have all ended.
func debtOf(now uint64, times *page.Times, budget *page.Budget) Debt {
	d := Debt{Rate: budget.Base}
	if budget.Flags&page.BudgetLimited == 0 {
		return d // nothing was counted, and nothing is owed
	}
	b := &times.Bucket
	level, burst := float64(page.Start), float64(budget.Burst)
	if b.Refilled != 0 {
		gained := float64(now-min(b.Refilled, now)) * float64(budget.Rate) / page.Whole
		level = float64(b.Balance) + float64(budget.Correction) - float64(b.Corrected)
		level = min(level+gained, max(level, burst))
	}
	level -= float64(unmeasured(now, times))
	d.Owed = uint64(min(max(math.Round(page.Start-level), 0), page.MostOwed))
	return d
}

// unmeasured is what the launches may have taken whose end nobody told because their
// process ended before. A launch of unknown cost has its turn since it was made; any
// other was charged up to when it was expected to end.
func unmeasured(now uint64, times *page.Times) (ns uint64) {
	since := func(begin uint64) uint64 {
		if begin == 0 || begin > now {
			return 0
		}
		return min(now-begin, unmeasuredMost)
	}
	if times.Bucket.Turn != 0 {
		ns = since(times.Bucket.Since)
	}
	for i := range times.Workers {
		if w := &times.Workers[i]; w.OpenSince != 0 {
			ns = max(ns, since(max(w.OpenSince, w.OpenUntil)))
		}
	}
	return ns
}
