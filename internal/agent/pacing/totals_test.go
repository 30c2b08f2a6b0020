package pacing

import (
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// near reports whether a total is what it should be.
func near(total uint64, want time.Duration) bool {
	return (time.Duration(total) - want).Abs() <= 200*time.Millisecond
}

// What a share with a limit does while no agent is there is paid from its bucket, and its base is its right: both go on.
func TestTotalsOfALimitedShareOutliveTheAgent(t *testing.T) {
	d := newDivision(t)
	m := d.add("fixed", shareOf(v1alpha1.PolicyFixed, 40, 1, v1alpha1.ClassOnline))
	d.pass(1, nil)
	work := &busy{pen: d.pen(m)}
	round := func(rounds int) control.Time {
		d.pass(rounds, func() { work.interval(d.now-uint64(2*time.Millisecond), d.now, uint64(2*time.Millisecond)) })
		return d.loop.Times("fixed")[0]
	}
	before := round(2000)
	if !near(before.Used, 4*time.Second) || !near(before.Entitled, 4*time.Second) {
		t.Fatalf("at first it used %v and had a right to %v", time.Duration(before.Used), time.Duration(before.Entitled))
	}
	// 40 s pass, in which it works as its base lets it.
	d.now += uint64(40 * time.Second)
	work.interval(d.now-uint64(time.Second), d.now, uint64(16*time.Second))
	d.restart()
	after := round(1)
	if !near(after.Used, 20*time.Second) || !near(after.Entitled, 20*time.Second) {
		t.Errorf("after 40 s away it used %v and had a right to %v", time.Duration(after.Used), time.Duration(after.Entitled))
	}
	after = round(2000)
	if !near(after.Used, 24*time.Second) || !near(after.Entitled, 24*time.Second) {
		t.Errorf("in the end it used %v and had a right to %v", time.Duration(after.Used), time.Duration(after.Entitled))
	}
	// No bucket makes more of the time away than it was.
	d.now += uint64(time.Second)
	work.interval(d.now-uint64(time.Second), d.now, uint64(time.Hour))
	d.restart()
	if got := round(1); got.Used-after.Used > uint64(1100*time.Millisecond) {
		t.Errorf("it is believed to have used %v in a second", time.Duration(got.Used-after.Used))
	}
}

// Of a share without a limit the driver alone tells what it did while no agent was there, and only of the last seconds. Of
// the time before nothing is known, so it is left out of what the share used and of what it had a right to.
func TestTotalsOfAFreeShareOutliveTheAgent(t *testing.T) {
	for name, c := range map[string]struct {
		away, kept, counted time.Duration
	}{
		"no time":             {0, 15 * time.Second, 0},
		"as the driver keeps": {10 * time.Second, 15 * time.Second, 10 * time.Second},
		"longer than that":    {30 * time.Second, 12 * time.Second, 12 * time.Second},
		"it keeps nothing":    {30 * time.Second, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDivision(t)
			d.add("free", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
			d.pass(1, nil)
			counted := func(kept time.Duration) control.Time { // the driver tells at once, of all that it keeps
				wall := time.Now()
				var samples []nvml.Sample
				for age := kept - kept%(200*time.Millisecond); age >= 0 && kept > 0; age -= 200 * time.Millisecond {
					samples = append(samples, nvml.Sample{At: wall.Add(-age), Busy: 1})
				}
				d.loop.countDriven(firstID, wall, samples, map[string]float64{"free": 1})
				d.loop.keep(firstID) // where the driver tells nothing
				return d.loop.Times("free")[0]
			}
			for range 10 {
				d.pass(200, nil)
				counted(time.Second)
			}
			before := d.loop.Times("free")[0]
			if !near(before.Used, 10*time.Second) || !near(before.Entitled, 10*time.Second) {
				t.Fatalf("at first it used %v and had a right to %v", time.Duration(before.Used), time.Duration(before.Entitled))
			}
			d.now += uint64(c.away)
			d.restart()
			d.pass(1, nil)
			if now := d.loop.Times("free")[0]; now.Used != before.Used || now.Entitled < before.Entitled {
				t.Errorf("the next agent begins with %v and %v", time.Duration(now.Used), time.Duration(now.Entitled))
			}
			after := counted(c.kept)
			if want := 10*time.Second + c.counted; !near(after.Used, want) || !near(after.Entitled, want) {
				t.Errorf("it used %v and had a right to %v, want %v", time.Duration(after.Used), time.Duration(after.Entitled), want)
			}
		})
	}
}
