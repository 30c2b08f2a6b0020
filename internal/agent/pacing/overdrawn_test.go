package pacing

import (
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/page"
)

// A share that tells all that it does and does more than it may is convicted by that, though
// the driver's figures alone would leave it within their tolerance. Who pays back, who pays
// for others, and who pays for what it was seen near is not.
func TestOverdrawnBillConvicts(t *testing.T) {
	for name, c := range map[string]struct {
		own    time.Duration // of each 5 ms
		rounds int
		owed   time.Duration // taken over
		blamed time.Duration
		guilty bool
	}{
		"goes on and on":       {3 * time.Millisecond, 7000, 0, 0, true},
		"one long launch":      {4500 * time.Microsecond, 2400, 0, 0, false},
		"within its share":     {500 * time.Microsecond, 7000, 0, 0, false},
		"pays for others":      {0, 2000, 100 * time.Second, 0, false},
		"pays for what it hid": {500 * time.Microsecond, 2000, 0, 60 * time.Second, false},
	} {
		co := &court{}
		d, p := co.judged(t, agentconfig.OutsideKill, "before")
		share := shareOf(v1alpha1.PolicyFixed, 10, 1, v1alpha1.ClassOnline)
		share.Owed = uint64(c.owed)
		work := &busy{pen: d.pen(d.add("share", share))}
		d.pass(1, nil)
		if c.blamed > 0 {
			d.loop.tenants["share"].shares[0].charge(d.now, uint64(c.blamed))
		}
		d.pass(c.rounds, func() {
			if c.own > 0 {
				work.interval(d.now-uint64(c.own), d.now, uint64(c.own))
			}
		})
		p.answerMisuse(t.Context())
		if (len(co.answered) == 1) != c.guilty || (len(co.told) == 1) != c.guilty {
			t.Errorf("%s: told %+v, answered %q", name, co.told, co.answered)
		}
		if !c.guilty {
			continue
		}
		d.pass(int(60*time.Second/time.Duration(yieldTick)), nil) // it pays some back
		if co.told, co.answered = nil, nil; p.Times("share")[0].Fault == "" {
			t.Errorf("%s: what was done about it is not shown", name)
		}
		if p.answerMisuse(t.Context()); len(co.answered) != 0 {
			t.Errorf("%s: afterwards %q", name, co.answered)
		}
	}
}

// hidden has the driver see a GPU busy while a share writes its page, and reports whether
// that is found out. seen is the driver's figure for the share's own processes.
func (d *division) hidden(busy, seen float64, rounds int, write func()) bool {
	share := d.loop.gpus[firstID].shares[0].tenant.id
	for round := range rounds {
		d.pass(1, write)
		if round%40 == 39 {
			d.loop.observe(firstID, d.now, d.now-uint64(300*time.Millisecond), 1, map[string]float64{share: seen}, nil)
		}
		if round%120 == 119 {
			d.loop.observeWhole(firstID, d.now, samplesOf(busy), time.Now())
		}
	}
	return d.loop.gpus[firstID].whole.Stands()
}

// A launch that is said to be under way hides nobody's work while the driver sees no process
// of the share at it.
func TestClaimedLaunchHidesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		seen  float64
		found bool
	}{"seen": {1, false}, "not seen": {0, true}, "hardly": {0.1, true}} {
		co := &court{}
		d, _ := co.judged(t, agentconfig.OutsideReport, "claims")
		p := d.pen(d.all[0])
		p.u32(workerWord(0, 0, page.OffsetOfWorkerOwner), 1)
		p.u64(workerWord(0, 0, page.OffsetOfWorkerOpenSince), d.now)
		p.u64(workerWord(0, 0, page.OffsetOfWorkerOpenUntil), d.now)
		if found := d.hidden(1, c.seen, 1600, nil); found != c.found {
			t.Errorf("%s: found %v", name, found)
		}
	}
}

// A share that tells as much as it may is excused nothing for processes that come and go.
func TestComingAndGoingExcusesNothingBeyondTheRate(t *testing.T) {
	for name, c := range map[string]struct {
		told, busy float64
		found      bool
	}{"tells all": {0.3, 0.6, true}, "tells half": {0.15, 0.3, false}, "tells nothing": {0, 0.3, false}} {
		co := &court{}
		d, _ := co.judged(t, agentconfig.OutsideReport, "share")
		work := &busy{pen: d.pen(d.all[0])}
		owner, own := uint32(1), uint64(c.told*float64(yieldTick))
		found := d.hidden(c.busy, c.told, 2400, func() {
			if own > 0 {
				work.interval(d.now-own, d.now, own)
			}
			owner++
			work.pen.u32(workerWord(0, 1, page.OffsetOfWorkerOwner), owner)
		})
		if found != c.found {
			t.Errorf("%s: found %v", name, found)
		}
	}
}
