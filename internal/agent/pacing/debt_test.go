package pacing

import (
	"os"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/page"
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
