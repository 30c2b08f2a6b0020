package pacing

import (
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
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
