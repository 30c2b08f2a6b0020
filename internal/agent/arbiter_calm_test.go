package agent

import (
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/page"
)

// rest lets idle rounds happen.
func (d *division) rest(rounds int) {
	for range rounds {
		d.now += uint64(idleTick)
		d.loop.round(d.t.Context())
	}
}

func (d *division) lively(uuid string) bool {
	g := d.loop.gpus[uuid]
	return d.now-g.lively < uint64(calm)
}

// Shares on which nothing happens are read seldom, and whoever wakes up is seen
// within a few rounds: one that has worked before at once.
func TestCalmSharesWakeUp(t *testing.T) {
	d := newDivision(t)
	worked := d.add("a", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
	fresh := d.add("b", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
	first, second := d.pen(worked), d.pen(fresh)
	d.pass(1, nil)
	first.u32(workerWord(0, 0, page.OffsetOfWorkerOwner), 1)
	first.u64(bucketWord(0, page.OffsetOfBucketLaunches), 1)
	d.pass(1, nil)
	d.rest(int(calm/idleTick) + 2*thorough)
	if d.lively(firstID) {
		t.Fatal("it is not calm")
	}
	before := d.budget(worked, 0).Tick
	d.rest(1)
	if now := d.budget(worked, 0).Tick; now != d.now || now == before {
		t.Errorf("the budget was renewed at %d, it is %d", now, d.now)
	}
	first.u64(bucketWord(0, page.OffsetOfBucketLaunches), 2)
	d.rest(1)
	if !d.lively(firstID) {
		t.Error("a share that has worked before was not seen at once")
	}
	d.rest(int(calm/idleTick) + 2*thorough)
	if d.lively(firstID) {
		t.Fatal("it is not calm again")
	}
	second.u64(bucketWord(0, page.OffsetOfBucketLaunches), 1)
	d.rest(vacant)
	if !d.lively(firstID) {
		t.Errorf("a share that never worked was not seen within %s", vacant*idleTick)
	}
}
