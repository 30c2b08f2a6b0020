package arbiter

import (
	"math"
	"testing"
)

// unseenPlay is a GPU whose whole use is sampled six times a second and told late.
type unseenPlay struct {
	busy, told float64 // parts of the time
	late       uint64  // of what is told
	open       bool    // one launch is said to be under way all the time
	seen       float64 // the driver's figure for the processes of the share that says so
	both       bool    // that share tells what is told
	rate       uint32
	missing    bool // the driver tells nothing
}

// run plays for so many ms and returns when it first stood, 0 for never, and all that was taken.
func (p unseenPlay) run(u *Unseen, from, length uint64) (stood uint64, taken float64) {
	var belief Belief
	for now := from; now < from+length; now += 10 * ms {
		own, open, told := uint64(0), uint64(0), uint64(0) // told is the part of own that the share tells which claims
		if p.late == 0 {
			own = uint64(p.told * 10 * ms)
		} else if now%p.late < 10*ms {
			own = uint64(p.told * float64(p.late))
		}
		if p.open {
			open = from
		}
		if p.both {
			told = own
		}
		seen := p.seen
		if now < from+800*ms { // the driver tells late
			seen = 0
		}
		u.Tell(now, own, p.rate, belief.Take(now, open, told, seen))
		if now%(170*ms) < 10*ms && now > from+600*ms && !p.missing {
			u.Observe(now-300*ms, p.busy)
		}
		if u.Stands() && stood == 0 {
			stood = now - from
		}
		taken += float64(u.Take())
	}
	return stood, taken
}

func TestUnseen(t *testing.T) {
	const start, length = 1000 * ms, 30_000 * ms
	for name, c := range map[string]struct {
		play  unseenPlay
		found bool
	}{
		"idle":                      {unseenPlay{}, false},
		"all is told":               {unseenPlay{busy: 0.9, told: 0.9}, false},
		"told in pieces":            {unseenPlay{busy: 0.9, told: 0.9, late: 200 * ms}, false},
		"a little is not told":      {unseenPlay{busy: 1, told: 0.88}, false},
		"copies beside nothing":     {unseenPlay{busy: 0.05}, false},
		"one long launch":           {unseenPlay{busy: 1, open: true, seen: 1}, false},
		"one beside what is told":   {unseenPlay{busy: 1, told: 0.5, open: true, seen: 0.5}, false},
		"a launch that nobody sees": {unseenPlay{busy: 1, open: true}, true},
		"what was told, once more":  {unseenPlay{busy: 0.9, told: 0.4, open: true, seen: 0.4, both: true}, true},
		"one that does a little":    {unseenPlay{busy: 1, open: true, seen: 0.3}, true},
		"charged and not told":      {unseenPlay{busy: 0.3, rate: Whole / 3}, false},
		"the driver tells nothing":  {unseenPlay{busy: 1, missing: true}, false},
		"nothing is told":           {unseenPlay{busy: 0.94}, true},
		"half is told":              {unseenPlay{busy: 0.9, told: 0.45}, true},
		"more than fresh ones may":  {unseenPlay{busy: 0.9, rate: Whole / 10}, true},
		"beside a hundred is twice": {unseenPlay{busy: 7, told: 0.1}, true},
	} {
		var u Unseen
		stood, taken := c.play.run(&u, start, length)
		longest := uint64(5000 * ms)
		if c.play.open { // it is believed for a while
			longest += 2 * doubtMost
		}
		if (stood != 0) != c.found || stood > longest {
			t.Errorf("%s: found after %d ms", name, stood/ms)
		}
		hidden := (min(c.play.busy, 1) - c.play.told) * length
		if !c.found && taken != 0 || c.found && (taken > hidden || taken < hidden/2) {
			t.Errorf("%s: %.0f ms were taken of %.0f", name, taken/ms, hidden/ms)
		}
		if !c.found {
			continue
		}
		// When it has stopped, it is soon over, and nothing more is taken.
		_, _ = unseenPlay{}.run(&u, start+length, 1000*ms)
		if _, more := (unseenPlay{}).run(&u, start+length+1000*ms, 4000*ms); more != 0 || u.Stands() || u.Suspects() {
			t.Errorf("%s: afterwards %.0f ms are taken", name, more/ms)
		}
	}
}

// A sample that is no number does not hide what the others show.
func TestUnseenAfterNoNumber(t *testing.T) {
	var u Unseen
	if stood, _ := (unseenPlay{busy: 0.94}).run(&u, 1000*ms, 800*ms); stood != 0 {
		t.Fatalf("found after %d ms", stood/ms)
	}
	u.Observe(1800*ms, math.NaN())
	if stood, taken := (unseenPlay{busy: 0.94}).run(&u, 1800*ms, 10_000*ms); stood == 0 || math.IsNaN(taken) {
		t.Errorf("found after %d ms, and %v taken", stood/ms, taken)
	}
}

// observeKept observes what the driver keeps of so many ms before, in samples of 170 ms that end 300 ms ago.
func (u *Unseen) observeKept(now, kept uint64, busy float64) {
	for at := now - kept; at+300*ms <= now; at += 170 * ms {
		u.Observe(at, busy)
	}
}

// What the GPU did before somebody began to listen, or while nobody did, is held against nobody; what it does then is.
func TestUnseenJudgesOnlyWhatWasListenedTo(t *testing.T) {
	var u Unseen
	now := uint64(100_000 * ms)
	for _, away := range []uint64{0, 1500 * ms, 60_000 * ms} {
		now += away
		for end := now + 800*ms; now < end; now += 10 * ms {
			u.Tell(now, 9*ms, 0, 0)
		}
		u.observeKept(now, 15_000*ms, 0.9)
		if u.Suspects() || u.Stands() {
			t.Fatalf("after %d ms away: %v ms are missing", away/ms, u.missing/ms)
		}
		if stood, _ := (unseenPlay{busy: 0.9, told: 0.9}).run(&u, now, 10_000*ms); stood != 0 {
			t.Fatalf("after %d ms away: found after %d ms", away/ms, stood/ms)
		}
		now += 10_000 * ms
	}
	if stood, _ := (unseenPlay{busy: 0.9, told: 0.4}).run(&u, now, 10_000*ms); stood == 0 {
		t.Error("what nobody tells is not found any more")
	}
}
