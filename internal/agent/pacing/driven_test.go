package pacing

import (
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// What a share does is counted once: by the driver's samples while it has no limit, and else as its library measures it.
func TestDriven(t *testing.T) {
	type sample struct {
		begin, end uint64
		busy, want float64
	}
	for name, c := range map[string]struct {
		d       driven
		samples []sample
		left    driven
	}{
		"measured":                      {driven{}, []sample{{0, 10, 1, 0}}, driven{}},
		"from the middle of a sample":   {driven{from: 5}, []sample{{0, 10, 0.5, 2.5}, {10, 20, 1, 10}}, driven{from: 20}},
		"a share that began then":       {driven{from: 5, fresh: true}, []sample{{0, 10, 0.4, 4}, {10, 20, 0.5, 5}}, driven{from: 20}},
		"with all that it could":        {driven{from: 5, fresh: true}, []sample{{0, 10, 1, 5}}, driven{from: 10}},
		"the same sample again":         {driven{from: 5}, []sample{{0, 10, 1, 5}, {0, 10, 1, 0}}, driven{from: 10}},
		"up to its limit":               {driven{from: 5, to: 15}, []sample{{0, 10, 1, 5}, {10, 20, 1, 5}, {20, 30, 1, 0}}, driven{}},
		"before it began, and a gap":    {driven{from: 50}, []sample{{0, 10, 1, 0}, {90, 100, 1, 10}}, driven{from: 100}},
		"its limit was before a sample": {driven{from: 5, to: 15}, []sample{{20, 30, 1, 0}}, driven{}},
	} {
		for _, s := range c.samples {
			if got := c.d.take(s.begin, s.end, s.busy); got != s.want {
				t.Errorf("%s: %v of %+v", name, got, s)
			}
		}
		if c.d != c.left {
			t.Errorf("%s: left is %+v, want %+v", name, c.d, c.left)
		}
	}
}

// A share that is alone, gets a neighbour and is alone again is counted by the driver, by its library, and by the driver:
// all of its time, once.
func TestTimeIsCountedOnceAcrossLimits(t *testing.T) {
	d := newDivision(t)
	first := d.add("first", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
	d.pass(1, nil)
	work := &busy{pen: d.pen(first)}
	begun := d.now
	wall := time.Now()
	at := func(ns uint64) time.Time { return wall.Add(-time.Duration(d.now - ns)) }
	told := begun
	round := func(rounds int, measured bool) {
		for range rounds {
			d.pass(1, func() {
				if measured {
					work.interval(d.now-uint64(yieldTick), d.now, uint64(yieldTick))
				}
			})
			for ; told+uint64(100*time.Millisecond)+uint64(300*time.Millisecond) <= d.now; told += uint64(100 * time.Millisecond) {
				sample := nvml.Sample{At: at(told + uint64(100*time.Millisecond)), Busy: 1}
				d.loop.countDriven(firstID, wall, []nvml.Sample{sample}, map[string]float64{"first": 1})
			}
		}
	}
	round(400, false)
	d.add("second", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
	round(400, true)
	d.remove("second")
	round(400, false)
	d.add("third", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
	round(400, true)
	passed, used := d.now-begun, d.loop.Times("first")[0].Used
	if slack := uint64(50 * time.Millisecond); used > passed || used < passed-slack {
		t.Errorf("%v of %v", time.Duration(used), time.Duration(passed))
	}
}
