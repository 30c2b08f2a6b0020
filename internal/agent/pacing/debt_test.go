package pacing

import (
	"os"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// What a share owes at its end is what its bucket lacks of a new one, and what its last
// launches can have taken that nobody measured.
func TestDebtOfAnEndedShare(t *testing.T) {
	const now, second, ms = 1000 * uint64(time.Second), uint64(time.Second), uint64(time.Millisecond)
	limited := page.Budget{Flags: page.BudgetLimited, Rate: page.Whole / 10, Base: page.Whole / 10, Burst: 4 * ms}
	worker := func(since, until uint64) []page.WorkerTimes {
		return []page.WorkerTimes{{OpenSince: since, OpenUntil: until}}
	}
	for name, c := range map[string]struct {
		budget page.Budget
		times  page.Times
		want   uint64
	}{
		"never used":             {limited, page.Times{}, 0},
		"without a limit":        {page.Budget{Base: page.Whole}, page.Times{Bucket: page.Bucket{Balance: -int64(second), Refilled: now}}, 0},
		"in debt":                {limited, page.Times{Bucket: page.Bucket{Balance: -450 * int64(ms), Refilled: now}}, 452 * ms},
		"in debt a second ago":   {limited, page.Times{Bucket: page.Bucket{Balance: -450 * int64(ms), Refilled: now - second}}, 352 * ms},
		"paid long ago":          {limited, page.Times{Bucket: page.Bucket{Balance: -450 * int64(ms), Refilled: now - 100*second}}, 0},
		"launch never measured":  {limited, page.Times{Bucket: page.Bucket{Balance: 2 * int64(ms), Refilled: now, Turn: 1, Since: now - 400*ms}}, 400 * ms},
		"launch that never ends": {limited, page.Times{Bucket: page.Bucket{Balance: 2 * int64(ms), Refilled: now, Turn: 1, Since: 1}}, 5 * second},
		"work not yet due":       {limited, page.Times{Bucket: page.Bucket{Balance: 2 * int64(ms), Refilled: now}, Workers: worker(now-second, now+second)}, 0},
		"work overdue":           {limited, page.Times{Bucket: page.Bucket{Balance: 2 * int64(ms), Refilled: now}, Workers: worker(now-second, now-100*ms)}, 100 * ms},
		"work in the future":     {limited, page.Times{Bucket: page.Bucket{Balance: 2 * int64(ms), Refilled: now}, Workers: worker(now+second, 0)}, 0},
		"a clock ahead":          {limited, page.Times{Bucket: page.Bucket{Balance: 2 * int64(ms), Refilled: now + second}}, 0},
		"absurd":                 {limited, page.Times{Bucket: page.Bucket{Balance: -1 << 62, Refilled: now}}, page.MostOwed},
	} {
		if got := debtOf(now, &c.times, &c.budget); got.Owed != c.want || got.Rate != c.budget.Base {
			t.Errorf("%s: %+v, want %d", name, got, c.want)
		}
	}
	blamed := limited
	blamed.Correction = -3 * int64(second)
	if got := debtOf(now, &page.Times{}, &blamed); got.Owed != 3*second {
		t.Errorf("without a bucket that was used: %+v", got)
	}
	corrected := limited
	corrected.Correction = 200 * int64(ms) // of which the library added half
	times := page.Times{Bucket: page.Bucket{Balance: -450 * int64(ms), Corrected: 100 * int64(ms), Refilled: now}}
	if got := debtOf(now, &times, &corrected); got.Owed != 352*ms {
		t.Errorf("with a correction on its way: %+v", got)
	}
}

// A share is settled from its pages, whether or not the loop has met it.
func TestSettle(t *testing.T) {
	for _, met := range []bool{true, false} {
		d := newDivision(t)
		m := d.add("a", shareOf(v1alpha1.PolicyFixed, 10, 1, v1alpha1.ClassOnline))
		d.pass(1, nil)
		p := d.pen(m)
		owed := -int64(time.Second)
		p.u64(bucketWord(0, page.OffsetOfBucketBalance), uint64(owed))
		p.u64(bucketWord(0, page.OffsetOfBucketRefilled), d.now)
		if !met {
			d.restart()
		}
		debts := d.loop.Settle(m)
		if len(debts) != 1 || debts[0] != (Debt{uint64(time.Second) + page.Start, page.Whole / 10}) {
			t.Errorf("met %v: %+v", met, debts)
		}
		if err := os.RemoveAll(m.Dir); err != nil {
			t.Fatal(err)
		}
		if debts := d.loop.Settle(m); (debts != nil) != met {
			t.Errorf("met %v, without its directory: %+v", met, debts)
		}
	}
}

// forged is a share of a tenth that takes over a debt, and works so much of each 5 ms while
// its page says whatever it likes.
func (d *division) forged(id string, owed uint64, own time.Duration, rounds int, forge func(p *pen)) Member {
	share := shareOf(v1alpha1.PolicyFixed, 10, 1, v1alpha1.ClassOnline)
	share.Owed = owed
	m := d.add(id, share)
	p := d.pen(m)
	work := &busy{pen: p}
	d.pass(1, nil)
	d.pass(rounds, func() {
		if own > 0 {
			work.interval(d.now-uint64(own), d.now, uint64(own))
		}
		forge(p)
	})
	d.pass(4, nil)
	return m
}

// Whatever a tenant writes into its page, it owes what the agent counted.
func TestForgedPagesOweWhatWasCounted(t *testing.T) {
	second := uint64(time.Second)
	for name, forge := range map[string]func(d *division, p *pen){
		"a full bucket": func(d *division, p *pen) {
			p.u64(bucketWord(0, page.OffsetOfBucketBalance), page.Start)
			p.u64(bucketWord(0, page.OffsetOfBucketRefilled), d.now)
		},
		"a bucket never used": func(_ *division, p *pen) {
			p.u64(bucketWord(0, page.OffsetOfBucketRefilled), 0)
		},
		"every correction made": func(_ *division, p *pen) {
			p.u64(bucketWord(0, page.OffsetOfBucketCorrected), 1<<63)
		},
	} {
		d := newDivision(t)
		d.add("before", shareOf(v1alpha1.PolicyFixed, 10, 1, v1alpha1.ClassOnline))
		d.pass(1, nil)
		m := d.forged("liar", 0, 2*time.Millisecond, 200, func(p *pen) { forge(d, p) })
		// It used 40 % of a second, of which 10 % were its own.
		if debts := d.loop.Settle(m); len(debts) != 1 || debts[0].Owed < second/4 || debts[0].Owed > second/2 {
			t.Errorf("%s: %+v", name, debts)
		}
		if err := os.Truncate(tenantdir.Dir(m.Dir).State(), 0); err != nil {
			t.Fatal(err)
		}
		if debts := d.loop.Settle(m); len(debts) != 1 || debts[0].Owed < second/4 {
			t.Errorf("%s and no page: %+v", name, debts)
		}
	}
}

// What a share was charged for work of processes that were seen is owed though it never
// used its bucket; and a share that was never looked at owes what it took over.
func TestDebtsWithoutABucket(t *testing.T) {
	d := newDivision(t)
	m := d.add("a", shareOf(v1alpha1.PolicyFixed, 10, 1, v1alpha1.ClassOnline))
	d.pass(1, nil)
	d.loop.tenants["a"].shares[0].charge(d.now, 5*uint64(time.Second))
	if debts := d.loop.Settle(m); len(debts) != 1 || debts[0].Owed != 5*uint64(time.Second) {
		t.Errorf("%+v", debts)
	}
	share := shareOf(v1alpha1.PolicyFixed, 10, 1, v1alpha1.ClassOnline)
	share.Owed = 7 * uint64(time.Second)
	if debts := d.loop.Settle(d.add("b", share)); len(debts) != 1 || debts[0].Owed != share.Owed {
		t.Errorf("never looked at: %+v", debts)
	}
}

// Who uses the GPU although it took over a debt is told and answered, and who waits is not.
func TestDefiance(t *testing.T) {
	for name, c := range map[string]struct {
		own    time.Duration
		owed   time.Duration
		defies bool
	}{
		"works although it owes": {2 * time.Millisecond, 3 * time.Second, true},
		"waits":                  {0, 3 * time.Second, false},
		"owes little":            {2 * time.Millisecond, 400 * time.Millisecond, false},
		"owes nothing":           {2 * time.Millisecond, 0, false},
	} {
		co := &court{}
		d, p := co.judged(t, agentconfig.OutsideKill, "before")
		m := d.forged("liar", uint64(c.owed), c.own, 200, func(p *pen) {
			p.u64(bucketWord(0, page.OffsetOfBucketBalance), page.Start)
			p.u64(bucketWord(0, page.OffsetOfBucketRefilled), d.now)
		})
		p.answerMisuse(t.Context())
		if (len(co.answered) == 1) != c.defies || (len(co.told) == 1) != c.defies {
			t.Errorf("%s: told %+v, answered %q", name, co.told, co.answered)
		}
		used := 200 * c.own
		if debts := d.loop.Settle(m); debts[0].Owed+uint64(time.Second)/8 < uint64(c.owed+used) || debts[0].Owed > uint64(c.owed+used) {
			t.Errorf("%s: it leaves %v of %v", name, time.Duration(debts[0].Owed), c.owed+used)
		}
	}
}

// A share that takes over a debt is told of it until it has paid.
func TestInheritedDebtIsShown(t *testing.T) {
	d := newDivision(t)
	d.pass(1, nil)
	one := shareOf(v1alpha1.PolicyFixed, 50, 1, v1alpha1.ClassOnline)
	one.Owed = uint64(2 * time.Second)
	d.add("debtor", one)
	d.pass(2, nil)
	if left := d.loop.Times("debtor")[0].Inherited; left < uint64(1900*time.Millisecond) || left > uint64(2*time.Second) {
		t.Errorf("it owes %v", time.Duration(left))
	}
	d.pass(1000, nil)
	if left := d.loop.Times("debtor")[0].Inherited; left != 0 {
		t.Errorf("after 5 s it owes %v", time.Duration(left))
	}
}
