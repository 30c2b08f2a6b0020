package arbiter_test

import (
	"math"
	"testing"

	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/test/model"
)

// Who tells of work that it does not do takes nobody's part for longer than it takes to find out, and has nobody else
// get more than theirs.
func TestClaimsTakeNobodysPart(t *testing.T) {
	for _, machine := range machines {
		for _, kernel := range []uint64{ms, 20 * ms} {
			m := model.New(machine.of(17))
			victim := m.Add("victim", fixed(70), model.Load{Kernel: kernel})
			gainer := m.Add("gainer", fixed(30), model.Load{Kernel: kernel, Processes: 3})
			m.Run(2 * sec)
			liar := m.Add("liar", weighted(1), model.Load{Kernel: ms, Processes: 16, Lie: model.Claimed})
			liar.Rest(true)
			m.Run(2 * sec)
			// In this time it is believed once more, for a second.
			if got := gains(m, 20*sec, victim, gainer); math.Abs(got[0]-70) > 3.5 || math.Abs(got[1]-30) > 3.5 {
				t.Errorf("%s, %d ms: %.2f of 70 and 30", machine.name, kernel/ms, got)
			}
			for _, one := range []*model.Tenant{victim, gainer} {
				if v := one.Verdict(); v != arbiter.Honest {
					t.Errorf("%s, %d ms: %s is %v", machine.name, kernel/ms, one.Key, v)
				}
			}
		}
	}
}

// teller tells a share's GPU time and the driver's figures of it, 300 ms late, and counts how often it is overtold.
type teller struct {
	watch  arbiter.Watch
	now    uint64
	next   uint64 // end of the sample that is due
	count  int
	before bool
}

// tell passes time in which a share tells of a part of the GPU's time, as a function of whether it is overtold. The
// samples last as long as given.
func (t *teller) tell(passed, length uint64, said func(overtold bool) float64, told arbiter.Sample) {
	if t.next == 0 {
		t.now, t.next = sec, sec+length
	}
	for end := t.now + passed; t.now < end; t.now += 5 * ms {
		t.watch.Tell(t.now, "a", arbiter.Told{Own: uint64(said(t.before) * float64(5*ms)), Rate: arbiter.Whole})
		if t.now > t.next+300*ms {
			told.At, told.Count = t.next, 1
			t.watch.Observe("a", told)
			t.next += length
		}
		overtold := t.watch.Overtold("a")
		if overtold && !t.before {
			t.count++
		}
		t.before = overtold
	}
}

// What processes without a share take is told by honest shares as their own, and is no claim.
func TestStrangersOvertellNobody(t *testing.T) {
	for _, test := range []struct {
		outside float64
		want    int
	}{{0.7, 0}, {0.5, 0}, {0, 1}} {
		var one teller
		one.tell(5*sec, sec/6, func(bool) float64 { return 1 }, arbiter.Sample{Busy: 0.3, Others: 0.7, Outside: test.outside})
		if one.count != test.want {
			t.Errorf("%v of 0.7 are taken without a share: overtold %d times, want %d", test.outside, one.count, test.want)
		}
	}
}

// A share that tells the truth again is believed again, although its processes told side by side meanwhile.
func TestTruthIsBelievedAgain(t *testing.T) {
	for _, length := range []uint64{sec / 6, 400 * ms, 800 * ms} {
		var one teller
		told := arbiter.Sample{Busy: 0.2, Others: 0.8}
		for !one.before && one.now < 10*sec {
			one.tell(100*ms, length, func(bool) float64 { return 1 }, told)
		}
		one.tell(30*sec, length, func(overtold bool) float64 {
			if overtold {
				return 3
			}
			return 0.2
		}, told)
		if one.count != 1 {
			t.Errorf("samples of %d ms: overtold %d times, want 1", length/ms, one.count)
		}
	}
}

// Equal reports give equal results, also where stamps of many processes are the same.
func TestEqualReportsGiveEqualResults(t *testing.T) {
	run := func() [2]uint64 {
		m := model.New(noisy(17))
		victim := m.Add("victim", fixed(70), model.Load{Kernel: 20 * ms})
		gainer := m.Add("gainer", fixed(30), model.Load{Kernel: 20 * ms, Processes: 3})
		m.Add("liar", weighted(1), model.Load{Kernel: ms, Processes: 16, Lie: model.Claimed}).Rest(true)
		m.Run(5 * sec)
		return [2]uint64{victim.Own(), gainer.Own()}
	}
	for first, again := run(), 0; again < 5; again++ {
		if got := run(); got != first {
			t.Fatalf("%v ns, then %v ns", first, got)
		}
	}
}
