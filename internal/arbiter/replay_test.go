package arbiter_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/divvy-gpu/divvy/internal/arbiter"
)

// told is one process that finished some intervals, in a replay that began at 1 s.
func told(key string, intervals ...arbiter.Interval) arbiter.Work {
	return arbiter.Work{Key: key, Share: key, Count: uint32(len(intervals)), Intervals: intervals}
}

// at is an interval in microseconds after 1 s, charged for its length.
func at(begin, end uint64) arbiter.Interval {
	return arbiter.Interval{Begin: sec + begin*us, End: sec + end*us, Charged: (end - begin) * us}
}

func replayed(works ...arbiter.Work) map[string]arbiter.Usage {
	var r arbiter.Replay
	r.Slice = 1000 * us
	r.Advance(sec, nil)
	return r.Advance(sec+200*ms, works)
}

func TestReplay(t *testing.T) {
	for _, test := range []struct {
		name  string
		works []arbiter.Work
		want  map[string]uint64 // us
	}{
		{"alone", []arbiter.Work{told("a", at(0, 5000))}, map[string]uint64{"a": 5000}},
		{"a kernel of 20 us inside a neighbour's interval is wholly its own",
			[]arbiter.Work{told("a", at(0, 50000)), told("b", at(7000, 7020), at(9300, 9320))}, map[string]uint64{"a": 49960, "b": 40}},
		{"long overlaps are halved", []arbiter.Work{told("a", at(0, 100000)), told("b", at(0, 100000))}, map[string]uint64{"a": 50000, "b": 50000}},
		{"and divided by three", []arbiter.Work{told("a", at(0, 90000)), told("b", at(0, 90000)), told("c", at(0, 90000))},
			map[string]uint64{"a": 30000, "b": 30000, "c": 30000}},
		{"after its neighbour ends one runs on", []arbiter.Work{told("a", at(0, 30000)), told("b", at(10000, 20000))}, map[string]uint64{"a": 25000, "b": 5000}},
		{"intervals without a gap are one", []arbiter.Work{told("a", at(0, 500), at(505, 3000)), told("b", at(1000, 2000))}, map[string]uint64{"a": 1995, "b": 1000}},
		{"clocks that differ lose nothing", []arbiter.Work{told("a", at(0, 110)), told("b", at(100, 200))}, map[string]uint64{"a": 110, "b": 100}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := replayed(test.works...)
			for share, want := range test.want {
				if off := math.Abs(float64(got[share].Own)/float64(us) - float64(want)); off > float64(want)*0.02+1 {
					t.Errorf("%s: %d us, want %d", share, got[share].Own/us, want)
				}
				if got[share].Fault != 0 {
					t.Errorf("%s: fault %b", share, got[share].Fault)
				}
			}
		})
	}
}

// TestReplayWaitsForOpenWork: what is told late changes the past.
func TestReplayWaitsForOpenWork(t *testing.T) {
	r := arbiter.Replay{Slice: 1000 * us}
	r.Advance(sec, nil)
	a := told("a", at(0, 20000))
	open := arbiter.Work{Key: "b", Share: "b", OpenSince: sec, OpenUntil: sec + 25*ms}
	if got := r.Advance(sec+22*ms, []arbiter.Work{a, open}); got["a"].Own != 0 {
		t.Errorf("a has %d before b told", got["a"].Own)
	}
	got := r.Advance(sec+30*ms, []arbiter.Work{a, told("b", at(0, 20000))})
	if got["a"].Own/us < 9000 || got["a"].Own/us > 11000 {
		t.Errorf("a has %d us of 10000", got["a"].Own/us)
	}
}

// TestReplayDoesNotWaitForGood for a process that was stopped, or says that its work is open for ever.
func TestReplayDoesNotWaitForGood(t *testing.T) {
	var r arbiter.Replay
	r.Advance(sec, nil)
	own := uint64(0)
	for i := uint64(1); i <= 200; i++ {
		now := sec + i*10*ms
		a := arbiter.Work{Key: "a", Share: "a", Count: uint32(i), Intervals: []arbiter.Interval{at((i-1)*10000, i*10000-100)}}
		hostile := arbiter.Work{Key: "b", Share: "b", OpenSince: 1, OpenUntil: math.MaxUint64}
		own += r.Advance(now, []arbiter.Work{a, hostile})["a"].Own
	}
	if own < 900*ms {
		t.Errorf("%d ms of 2000 in 2 s", own/ms)
	}
}

func TestUnmeasuredWorkIsTakenFromNeighbours(t *testing.T) {
	r := arbiter.Replay{Slice: 1000 * us}
	short := arbiter.Work{Key: "b", Share: "b"}
	r.Advance(sec, []arbiter.Work{short})
	short.Unmeasured = 3 * ms
	got := r.Advance(sec+10*ms, []arbiter.Work{told("a", at(0, 10000)), short})
	if got["b"].Own != 3*ms || got["b"].Charged != 3*ms || got["a"].Own/us < 6900 || got["a"].Own/us > 7100 {
		t.Errorf("a has %d us of 7000, b %d", got["a"].Own/us, got["b"].Own/us)
	}
	short.Unmeasured += 4 * ms
	if got = r.Advance(sec+20*ms, []arbiter.Work{{Key: "a", Share: "a", Count: 2, Intervals: []arbiter.Interval{at(0, 10000), at(15000, 20000)}}, short}); got["a"].Own != 5*ms {
		t.Errorf("work that fits beside a's was taken from a: %d us of 5000", got["a"].Own/us)
	}
}

func TestOverwrittenIntervalsCountAsCharged(t *testing.T) {
	var r arbiter.Replay
	r.Advance(sec, []arbiter.Work{{Key: "a", Share: "a"}})
	got := r.Advance(sec+200*ms, []arbiter.Work{{Key: "a", Share: "a", Count: 10, Intervals: []arbiter.Interval{at(90000, 91000), at(95000, 96000)}}})
	if u := got["a"]; u.Own != 10*ms || u.Charged != 10*ms || u.Measured != 2*ms {
		t.Errorf("%+v, want 10 ms each, 2 measured", u)
	}
}

func TestAssumedShareHasItsTurns(t *testing.T) {
	r := arbiter.Replay{Slice: 1000 * us}
	r.Advance(sec, nil)
	r.Assume("liar", true)
	got := r.Advance(sec+100*ms, []arbiter.Work{told("a", at(0, 100000)), told("liar", at(0, 10))})
	if got["a"].Own/us > 52000 || got["liar"].Own/us < 48000 || got["liar"].Told != 10*us {
		t.Errorf("a %d us, liar %d of 50000 each; the liar said %d", got["a"].Own/us, got["liar"].Own/us, got["liar"].Told)
	}
	r.Assume("liar", false)
	a := arbiter.Work{Key: "a", Share: "a", Count: 2, Intervals: []arbiter.Interval{at(100000, 200000)}}
	if got := r.Advance(sec+200*ms, []arbiter.Work{a}); got["a"].Own != 100*ms {
		t.Errorf("afterwards a has %d us of 100000", got["a"].Own/us)
	}
}

func TestFaults(t *testing.T) {
	for _, test := range []struct {
		name string
		work arbiter.Work
		want arbiter.Fault
	}{
		{"ends before it begins", told("x", arbiter.Interval{Begin: sec + 5, End: sec + 4}), arbiter.FaultBackwards},
		{"begins in the last one", told("x", at(10000, 20000), at(5000, 25000)), arbiter.FaultBackwards},
		{"ends in the future", told("x", at(0, 900000)), arbiter.FaultFuture},
		{"opens in the future", arbiter.Work{Key: "x", Share: "x", OpenSince: 10 * sec}, arbiter.FaultFuture},
	} {
		if got := replayed(test.work, told("a", at(0, 1000)))["x"].Fault; got != test.want {
			t.Errorf("%s: fault %b, want %b", test.name, got, test.want)
		}
	}
	var r arbiter.Replay
	r.Advance(sec, []arbiter.Work{{Key: "x", Share: "x"}})
	if got := r.Advance(sec+5*ms, []arbiter.Work{{Key: "x", Share: "x", Unmeasured: sec}})["x"]; got.Fault != arbiter.FaultExcess || got.Own > 5*ms {
		t.Errorf("more than time has passed: %+v", got)
	}
}

// FuzzReplay gives the replay any words: what it tells of an honest neighbour lies within that one's intervals and
// comes after a bounded time, whatever the other says.
func FuzzReplay(f *testing.F) {
	for seed := range uint64(40) {
		random, data := rand.New(rand.NewPCG(seed, 1)), make([]byte, 8*1024)
		for i := 0; i < len(data); i += 8 {
			binary.LittleEndian.PutUint64(data[i:], random.Uint64())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		word := func() uint64 {
			var eight [8]byte
			n := copy(eight[:], data)
			data = data[n:]
			v := binary.LittleEndian.Uint64(eight[:])
			switch v % 4 {
			case 0:
				return v
			case 1:
				return sec + v%(400*ms)
			case 2:
				return v % 1000
			}
			return math.MaxUint64 - v%1000
		}
		r := arbiter.Replay{Slice: word()}
		r.Advance(sec, nil)
		own, length := uint64(0), uint64(0)
		for i := uint64(1); i <= 40 && len(data) > 0; i++ {
			honest := arbiter.Work{Key: "honest", Share: "honest", Count: uint32(i), Intervals: []arbiter.Interval{at((i-1)*10000, i*10000-1000)}}
			length += 9 * ms
			hostile := arbiter.Work{Key: "hostile", Share: "hostile", Count: uint32(word()), OpenSince: word(), OpenUntil: word(), Unmeasured: word()}
			for range word() % 16 {
				hostile.Intervals = append(hostile.Intervals, arbiter.Interval{Begin: word(), End: word(), Charged: word()})
			}
			u := r.Advance(sec+i*10*ms, []arbiter.Work{hostile, honest})
			own += u["honest"].Own
			if own > length || u["honest"].Fault != 0 {
				t.Fatalf("honest share: %d ns of at most %d, fault %b", own, length, u["honest"].Fault)
			}
			if u["hostile"].Own > 16*sec {
				t.Fatalf("hostile share has %d ns", u["hostile"].Own)
			}
		}
		if got := r.Advance(sec+3*sec, nil); own+got["honest"].Own > length || own+got["honest"].Own < length/8 {
			t.Fatalf("in the end the honest share has %d of %d", own+got["honest"].Own, length)
		}
	})
}
