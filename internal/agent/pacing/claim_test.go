package pacing

import (
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/page"
)

// A share that tells of work that the driver does not see takes none of a neighbour's time, and is counted by the driver's
// figures.
func TestClaimedWorkIsNobodys(t *testing.T) {
	d := newDivision(t)
	honest := d.add("honest", shareOf(v1alpha1.PolicyFixed, 70, 1, v1alpha1.ClassOnline))
	liar := d.add("liar", shareOf(v1alpha1.PolicyFixed, 30, 1, v1alpha1.ClassOnline))
	work, lie := &busy{pen: d.pen(honest)}, &busy{pen: d.pen(liar)}
	tick := uint64(yieldTick)
	pass := func(rounds int) (used, claimed uint64) {
		before, lied := d.loop.Times("honest")[0].Used, d.loop.Times("liar")[0].Used
		for round := range rounds {
			d.pass(1, func() {
				work.interval(d.now-tick, d.now, tick)
				lie.interval(d.now-tick, d.now, tick)
			})
			if round%40 == 39 {
				d.loop.observe(firstID, d.now, d.now-uint64(250*time.Millisecond), 1, map[string]float64{"honest": 1}, map[string]int{"honest": 1})
			}
		}
		return d.loop.Times("honest")[0].Used - before, d.loop.Times("liar")[0].Used - lied
	}
	d.pass(1, nil)
	pass(500)
	if used, claimed := pass(400); used < 390*tick || claimed > 10*tick {
		t.Errorf("of %d ns the honest share had %d, and the other %d", 400*tick, used, claimed)
	}
	if s := d.loop.tenants["liar"].shares[0]; s.convicted() {
		t.Errorf("it is convicted: %s", s.complaint(d.now))
	}
	d.loop.unknow(firstID)
	if _, claimed := pass(100); claimed < 30*tick {
		t.Errorf("without the driver's figures %d ns are counted of what it tells", claimed)
	}
}

// Whatever its processes tell, a share has no more than all of the GPU's time.
func TestNoShareHasMoreThanAll(t *testing.T) {
	d := newDivision(t)
	liar := d.add("liar", shareOf(v1alpha1.PolicyFixed, 30, 1, v1alpha1.ClassOnline))
	p := d.pen(liar)
	for w := range page.Workers {
		p.u32(workerWord(0, w, page.OffsetOfWorkerOwner), uint32(w+1))
	}
	d.pass(2, nil)
	begun := d.now
	d.pass(400, func() {
		for w := range page.Workers {
			p.u64(workerWord(0, w, page.OffsetOfWorkerUnmeasured), d.now-begun)
		}
	})
	if used := d.loop.Times("liar")[0].Used; used > d.now-begun+spareMost {
		t.Errorf("of %d ns it has used %d", d.now-begun, used)
	}
}
