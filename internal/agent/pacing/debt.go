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
// for each share; nil where nothing is known of them.
func (l *loop) Settle(m Member) []Debt {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, met := l.tenants[m.ID], true
	if t == nil {
		met = false
		var err error
		if t, err = openTenant(l.clock(), &m); err != nil {
			return nil
		}
		defer t.close()
	}
	now := l.clock()
	debts := make([]Debt, len(t.shares))
	for d, s := range t.shares {
		times, err := t.time.Times.Read(d)
		switch {
		case err == nil:
			debts[d] = debtOf(now, times, &s.budget)
		case met:
			debts[d].Rate = s.budget.Base // a tenant that spoils its page owes what was counted
		default:
			return nil
		}
		switch {
		case met && s.limited():
			s.bill.pass(now, &s.budget)
			debts[d].Owed = max(debts[d].Owed, s.bill.owed())
		case !met && l.built != nil: // it began and ended since the last look
			debts[d].Owed = max(debts[d].Owed, min(m.Shares[d].Owed, page.MostOwed))
		}
	}
	return debts
}

// debtOf is what a share owes by its page whose processes have all ended.
func debtOf(now uint64, times *page.Times, budget *page.Budget) Debt {
	d := Debt{Rate: budget.Base}
	if budget.Flags&page.BudgetLimited == 0 {
		return d // nothing was counted, and nothing is owed
	}
	d.Owed = owedAt(levelOf(now, times, budget) - float64(unmeasured(now, times)))
	return d
}

// owedAt is what a bucket of a level lacks of a new one.
func owedAt(level float64) uint64 {
	return uint64(min(max(math.Round(page.Start-level), 0), page.MostOwed))
}

// levelOf is what a share's page says that its bucket holds.
func levelOf(now uint64, times *page.Times, budget *page.Budget) float64 {
	b := &times.Bucket
	due := float64(budget.Correction) - float64(b.Corrected)
	if b.Refilled == 0 {
		return page.Start + due // no process used it, and what is due is still to come
	}
	gained := float64(now-min(b.Refilled, now)) * float64(budget.Rate) / page.Whole
	level := float64(b.Balance) + due
	return min(level+gained, max(level, float64(budget.Burst)))
}

const (
	// billSlack is how much more a bill may hold than the bucket: the two are never read at
	// the same moment.
	billSlack = float64(100 * time.Millisecond)
	// defiedFrom is what a share must owe by its bill to defy it. Its library lets no process
	// have a context while it owes twice that, and launch nothing while it owes anything.
	defiedFrom = float64(500 * time.Millisecond)
	// defiedLeast is the GPU time used meanwhile that is told and answered.
	defiedLeast = uint64(200 * time.Millisecond)
	// overdrawnMost is the most that a share may take beyond its rates before it pays any of
	// it back. It is more than what one launch may take that cannot be cut, see
	// [arbiter.Watch].
	overdrawnMost = uint64(15 * time.Second)
)

// bill is a share's bucket as the agent itself keeps it, by what it counted. The one in the
// page is the tenant's word.
type bill struct {
	level float64 // ns
	at    uint64  // when it was that, 0 before the share was met
	// paid is how far the share has paid what it took over or was made to pay, 0 for all of
	// it: what it owes beyond that it took itself.
	paid float64
	// inherited is whether the share still pays for earlier ones of its user, and defied what
	// it used meanwhile.
	inherited bool
	defied    uint64
}

// begin opens the bill of a share that was just made and takes over so much.
func (b *bill) begin(now, owed uint64) {
	b.resume(now, page.Start-float64(min(owed, page.MostOwed)))
	b.inherited = b.level < -defiedFrom
}

// resume opens the bill of a share that is as far as that.
func (b *bill) resume(now uint64, level float64) {
	*b = bill{level: level, at: now, paid: min(level, 0)}
}

// pass adds what the share may use by now.
func (b *bill) pass(now uint64, budget *page.Budget) {
	rate := float64(page.Whole)
	if budget.Flags&page.BudgetLimited != 0 {
		rate = float64(min(budget.Rate, page.Whole))
		if now-min(b.at, now) > page.StaleNs { // by then the library believes the base
			rate = max(rate, float64(min(budget.Base, page.Whole)))
		}
	}
	gained := float64(now-min(b.at, now)) * rate / page.Whole
	b.level = min(b.level+gained, max(b.level, page.Start, float64(budget.Burst)+billSlack))
	b.at = max(b.at, now)
	b.paid = max(b.paid, min(b.level, 0))
	if b.level >= -defiedFrom {
		b.inherited, b.defied = false, 0
	}
}

// use takes off what was used, of which the share told a part. counted is whether it had a
// limit to obey.
func (b *bill) use(used, told uint64, counted bool) {
	b.level = max(b.level-float64(used), -page.MostOwed)
	if b.inherited && counted {
		b.defied += told
	}
}

// impose has the share pay for what it was not seen to use.
func (b *bill) impose(ns uint64) {
	b.use(ns, 0, false)
	b.paid -= float64(ns)
}

// overdrawn is the GPU time that the share took beyond all that its rates allowed, and did
// not pay back. An honest library launches nothing more until it has.
func (b *bill) overdrawn() uint64 { return uint64(max(b.paid-b.level, 0)) }

// owed is what the share owes by the bill.
func (b *bill) owed() uint64 { return owedAt(b.level) }

// defies reports whether the share uses the GPU as if it owed nothing.
func (b *bill) defies() bool { return b.defied >= defiedLeast }

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
