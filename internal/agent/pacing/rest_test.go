package pacing

import (
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
)

// rest lets rounds of resting GPUs happen.
func (d *division) rest(rounds int) {
	for range rounds {
		d.now += uint64(restTick)
		d.loop.round(d.t.Context())
	}
}

func (d *division) lively(uuid string) bool {
	g := d.loop.gpus[uuid]
	return d.now-g.lively < uint64(calm)
}

// calmDown waits until the first GPU rests.
func (d *division) calmDown() {
	d.t.Helper()
	d.rest(int(calm/restTick) + 1)
	if d.lively(firstID) || !d.loop.gpus[firstID].resting {
		d.t.Fatal("it does not rest")
	}
}

// calmDivision has two shares of one GPU that rests: of a somebody has worked, of
// b nobody.
func calmDivision(t *testing.T) (d *division, a, b Member) {
	d = newDivision(t)
	a = d.add("a", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
	b = d.add("b", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
	d.pass(1, nil)
	d.pen(a).u32(workerWord(0, 0, page.OffsetOfWorkerOwner), 1)
	d.launched(a, 1)
	d.pass(1, nil)
	d.calmDown()
	return d, a, b
}

// launched says how many launches a tenant has charged on its first GPU.
func (d *division) launched(m Member, launches uint64) {
	d.t.Helper()
	d.pen(m).u64(bucketWord(0, page.OffsetOfBucketLaunches), launches)
}

// What was decided for a GPU that rests holds until somebody decides again, and
// not longer than the page allows.
func TestRestIsALease(t *testing.T) {
	d, a, _ := calmDivision(t)
	for range 5 {
		next := d.loop.round(t.Context())
		until := d.budget(a, 0).Tick
		if until+page.StaleNs <= next || until > d.now+page.LeaseNs {
			t.Fatalf("at %d it holds until %d, and the next decision is at %d", d.now, until, next)
		}
		d.now = next
	}
}

// Whoever ends a silence is seen at once, also where no process ever worked, and
// whoever tells nothing by one of the next decisions.
func TestRestEnds(t *testing.T) {
	d, a, b := calmDivision(t)
	for _, m := range []Member{a, b} {
		d.launched(m, 7)
		d.now += uint64(yieldTick)
		d.loop.Stir(m.ID)
		if next := d.loop.round(t.Context()); !d.lively(firstID) || next > d.now+uint64(busyTick) {
			t.Errorf("%s was not seen: the next round is %d ns later", m.ID, next-d.now)
		}
		if tick := d.budget(m, 0).Tick; tick != d.now {
			t.Errorf("%s: decided at %d, its budget says %d", m.ID, d.now, tick)
		}
		d.calmDown()
	}
	d.launched(a, 8)
	d.rest(1)
	if !d.lively(firstID) {
		t.Error("a share that has worked before was not seen")
	}
	d.calmDown()
	d.launched(b, 8)
	d.rest(1)
	if !d.lively(firstID) {
		t.Error("a share that never worked was not seen")
	}
}

// Stirring without work gets nobody a livelier GPU, and costs one look each time.
func TestStirringAlone(t *testing.T) {
	d, a, _ := calmDivision(t)
	for range 3 {
		d.now += uint64(yieldTick)
		d.loop.Stir(a.ID)
		d.loop.Stir("nobody")
		if next := d.loop.round(t.Context()); next < d.now+uint64(yieldTick) || next > d.now+uint64(restTick) {
			t.Errorf("the next look is %d ns later", next-d.now)
		}
	}
	if d.lively(firstID) || !d.loop.gpus[firstID].resting {
		t.Error("it does not rest any more")
	}
}

// Who comes, goes or changes ends the rest of their own GPU alone.
func TestOthersRestOn(t *testing.T) {
	d, a, _ := calmDivision(t)
	elsewhere := shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline)
	elsewhere.GPU.UUID = otherID
	for _, change := range []func(){
		func() { d.add("c", elsewhere) }, d.publish, func() { d.remove("c") },
	} {
		change()
		d.pass(1, nil)
		if d.lively(firstID) || !d.loop.gpus[firstID].resting {
			t.Fatal("its rest ended")
		}
	}
	d.all[0].Shares = []backend.Share{shareOf(v1alpha1.PolicyWeighted, 0, 3, v1alpha1.ClassOnline)}
	d.publish()
	d.pass(1, nil)
	if !d.lively(firstID) {
		t.Errorf("it rests after the weight of %s changed", a.ID)
	}
}

// waits has the launches of a share wait: its bucket lacks so much GPU time.
func (p *pen) waits(now uint64, lacks time.Duration) {
	p.u64(bucketWord(0, page.OffsetOfBucketRefilled), now)
	p.u64(bucketWord(0, page.OffsetOfBucketBalance), uint64(-int64(lacks)))
	p.u64(bucketWord(0, page.OffsetOfBucketWanted), now)
}

// A share whose launches wait for the bucket is not read until the bucket may hold something,
// and goes on counting as one that wants more. A rate that rises has it read at once.
func TestWhoWaitsIsLetSleep(t *testing.T) {
	d := newDivision(t)
	m := d.add("a", shareOf(v1alpha1.PolicyFixed, 10, 1, v1alpha1.ClassOnline))
	d.add("b", shareOf(v1alpha1.PolicyFixed, 40, 1, v1alpha1.ClassOnline))
	pen := d.pen(m)
	d.pass(40, nil)
	share := d.loop.tenants["a"].shares[0]
	pen.waits(d.now, 3*time.Millisecond) // 30 ms at a rate of 10 %
	d.pass(int(busyTick/yieldTick), nil)
	if left := share.asleep - min(d.now, share.asleep); left == 0 || left > uint64(30*time.Millisecond) {
		t.Fatalf("read again in %v", time.Duration(left))
	}
	if !share.wanted || !share.active {
		t.Errorf("wants more: %v, active: %v", share.wanted, share.active)
	}
	d.launched(m, d.now)
	launches := share.bucket.Launches
	for share.asleep > d.now {
		if share.bucket.Launches != launches {
			t.Fatal("a share that can only wait is read")
		}
		d.pass(1, nil)
	}
	d.pass(int(busyTick/yieldTick), nil)
	if share.bucket.Launches == launches {
		t.Error("the launch after the wait is not read")
	}

	pen.waits(d.now, 3*time.Second)
	d.pass(int(busyTick/yieldTick), nil)
	if left := share.asleep - min(d.now, share.asleep); left == 0 || left > uint64(asleepMost) {
		t.Fatalf("a share that says it waits for long is read again in %v", time.Duration(left))
	}
	share.set(d.now, arbiter.Budget{Limited: true, Capped: true, Rate: 2 * share.budget.Rate, Base: share.budget.Base})
	if share.asleep != 0 {
		t.Error("a rate that rose is not followed at once")
	}
}

// Nothing is missed of a share that works, that has credit, or that stopped waiting.
func TestWhoMayLaunchIsRead(t *testing.T) {
	now := uint64(time.Hour)
	for name, change := range map[string]func(s *shareTime, b *page.Bucket){
		"has credit":     func(_ *shareTime, b *page.Bucket) { b.Balance = 1 },
		"waited before":  func(_ *shareTime, b *page.Bucket) { b.Wanted = now - waiting - 1 },
		"never waited":   func(_ *shareTime, b *page.Bucket) { b.Wanted = 0 },
		"works":          func(s *shareTime, _ *page.Bucket) { s.works = []arbiter.Work{{OpenSince: now - 1}} },
		"has no limit":   func(s *shareTime, _ *page.Bucket) { s.budget.Flags = 0 },
		"gives way":      func(s *shareTime, _ *page.Bucket) { s.budget.Flags |= page.BudgetYield },
		"gets a return":  func(s *shareTime, _ *page.Bucket) { s.budget.Correction = int64(time.Second) },
		"has no rate":    func(s *shareTime, _ *page.Bucket) { s.budget.Rate = 0 },
		"waits for next": func(_ *shareTime, b *page.Bucket) { b.Refilled = now - uint64(time.Second) },
	} {
		s := &shareTime{budget: page.NewBudget(100_000, page.Start, 1)}
		times := &page.Times{Bucket: page.Bucket{Refilled: now, Wanted: now, Balance: -int64(time.Millisecond)}}
		if until := s.sleepsUntil(now, times); until != now+uint64(10*time.Millisecond) {
			t.Fatalf("a share that waits is read in %v", time.Duration(until-now))
		}
		change(s, &times.Bucket)
		if until := s.sleepsUntil(now, times); until != 0 {
			t.Errorf("a share that %s is not read for %v", name, time.Duration(until-now))
		}
	}
}

// Whoever waits again after a while is answered with the next look, also if it waited before
// the last decision.
func TestWaitingAnewIsNews(t *testing.T) {
	d := newDivision(t)
	m := d.add("a", shareOf(v1alpha1.PolicyFixed, 40, 1, v1alpha1.ClassOnline))
	d.add("b", shareOf(v1alpha1.PolicyFixed, 40, 1, v1alpha1.ClassOnline))
	pen := d.pen(m)
	for range 5 {
		d.pass(40, nil)
		for d.now%uint64(busyTick) != uint64(yieldTick) {
			d.pass(1, nil)
		}
		pen.u64(bucketWord(0, page.OffsetOfBucketWanted), d.now)
		d.pass(2, nil)
		if tick := d.budget(m, 0).Tick; tick != d.now {
			t.Fatalf("a first wait is decided about at %d, not %d", tick, d.now)
		}
		d.pass(2, nil)
		pen.u64(bucketWord(0, page.OffsetOfBucketWanted), d.now+1) // so long after the first that it is hungry anew
		d.pass(1, nil)
		if tick := d.budget(m, 0).Tick; tick != d.now {
			t.Fatalf("waits anew, decided at %d, not at %d", tick, d.now)
		}
	}
}

// A share that begins to wait finds, by the next look and by the one after, that its budget was
// decided since, also where nothing of it changed and it was written shortly before.
func TestWhoBeginsToWaitIsAnswered(t *testing.T) {
	d := newDivision(t)
	m := d.add("a", shareOf(v1alpha1.PolicyFixed, 10, 1, v1alpha1.ClassOnline))
	d.add("b", shareOf(v1alpha1.PolicyFixed, 40, 1, v1alpha1.ClassOnline))
	pen, looks := d.pen(m), int(busyTick/yieldTick)
	for range 5 {
		d.pass(8*looks, nil)
		for d.now%uint64(busyTick) != uint64(yieldTick) {
			d.pass(1, nil)
		}
		pen.waits(d.now, time.Second)
		for range 2 {
			since := d.now
			pen.u64(bucketWord(0, page.OffsetOfBucketWanted), since)
			d.pass(looks, nil)
			if tick := d.budget(m, 0).Tick; tick < since {
				t.Fatalf("waits since %d, decided at %d", since, tick)
			}
		}
	}
}

// Offline shares follow online ones with every look, and these come more often.
func TestLooksAreOftenerWhereSharesYield(t *testing.T) {
	d := newDivision(t)
	d.add("a", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
	d.add("b", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
	d.now += uint64(yieldTick)
	if next := d.loop.round(t.Context()) - d.now; next > uint64(busyTick) {
		t.Errorf("the next look is %d ns later", next)
	}
	d.add("c", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOffline))
	d.now += uint64(yieldTick)
	if next := d.loop.round(t.Context()) - d.now; next > uint64(yieldTick) {
		t.Errorf("beside an offline share the next look is %d ns later", next)
	}
}
