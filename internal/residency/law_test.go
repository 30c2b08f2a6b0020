package residency_test

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/divvy-gpu/divvy/internal/residency"
)

// fits checks that what runs or enters fits.
func fits(m *machine) {
	for g, gpu := range m.gpus {
		var present uint64
		for _, one := range m.tenants {
			if one.order.State == residency.Resident || one.order.State == residency.Entering {
				present += one.Bytes[g]
			}
		}
		if present > gpu.Room {
			m.t.Fatalf("GPU %d: %d bytes of %d are resident at once: %s", g, present, gpu.Room, m)
		}
	}
}

func TestTwoThatFitNeverWait(t *testing.T) {
	m := newMachine(t, residency.GPU{Room: 16 * gib, Rate: 12 * gib})
	w, p := busy()
	one, other := m.add("one", 1, w, p, 8*gib), m.add("other", 1, w, p, 8*gib)
	m.judge = fits
	m.run(600 * second)
	if m.changes > 0 || one.waited+other.waited > 10 {
		t.Errorf("%d leave, %d and %d ns are waited for", m.changes, one.waited, other.waited)
	}
}

func TestTurnsCostLittleAndAreFair(t *testing.T) {
	for name, weights := range map[string][]int{"equal": {1, 1}, "one to three": {1, 3}, "three": {1, 1, 1}, "one to ten": {1, 10}} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, residency.GPU{Room: 16 * gib, Rate: 12 * gib})
			w, p := busy()
			sum := 0
			var all []*tenant
			for i, weight := range weights {
				sum += weight
				all = append(all, m.add(string(rune('a'+i)), weight, w, p, 15*gib))
			}
			m.judge = fits
			m.run(200 * 60 * second)
			var used uint64
			for _, one := range all {
				used += one.gpuTime
			}
			for i, one := range all {
				if got, want := 100*float64(one.gpuTime)/float64(used), 100*float64(weights[i])/float64(sum); got < want-3 || got > want+3 {
					t.Errorf("weight %d got %.1f %%, want %.1f", weights[i], got, want)
				}
			}
			if lost := 1 - float64(used)/float64(200*60*second); lost > 0.05 {
				t.Errorf("%.2f %% is lost to moving", 100*lost)
			}
			t.Logf("%d changes, %.3f lost", m.changes, 1-float64(used)/float64(200*60*second))
		})
	}
}

func TestNotebookWaitsForItsBytesOnly(t *testing.T) {
	m := newMachine(t, residency.GPU{Room: 16 * gib, Rate: 12 * gib})
	w, p := busy()
	batch := m.add("batch", 1, w, p, 14*gib)
	random := rand.New(rand.NewPCG(1, 2))
	notebook := m.add("notebook", 1, always(second), func() uint64 { return 9*second + random.Uint64N(second) }, 10*gib)
	m.judge = fits
	m.run(1000 * second)
	bytes := float64(10*gib+10*gib) / float64(12*gib) * float64(second)
	t.Logf("longest %d ms, of which %d move; batch %.2f", notebook.longest/ms, uint64(bytes)/ms, float64(batch.gpuTime)/float64(1000*second))
	if notebook.longest > uint64(bytes)+2*second {
		t.Errorf("the notebook waits for %d ms", notebook.longest/ms)
	}
}

func TestOnlineEntersAtOnceAndLeavesLast(t *testing.T) {
	m := newMachine(t, residency.GPU{Room: 16 * gib, Rate: 12 * gib})
	w, p := busy()
	first, other := m.add("first", 1, w, p, 10*gib), m.add("second", 1, w, p, 10*gib)
	online := m.add("online", 1, always(20*ms), always(80*ms), 6*gib)
	online.Online = true
	m.judge = fits
	m.run(5 * second)
	online.longest = 0
	m.run(600 * second)
	if online.longest > 0 || online.order.State != residency.Resident {
		t.Errorf("the online share waits for %d ms", online.longest/ms)
	}
	if first.gpuTime == 0 || other.gpuTime == 0 {
		t.Errorf("a batch never runs: %s", m)
	}
}

// TestWhoLeaves has one share ask for room, which others that rest have to make.
func TestWhoLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		rest  []uint64 // GiB of the shares that rest
		asks  uint64   // GiB
		gives map[string]uint64
	}{
		"the smaller one is enough":       {[]uint64{10, 4}, 5, map[string]uint64{"b": 3}},
		"the smaller one is too small":    {[]uint64{10, 4}, 7, map[string]uint64{"a": 5}},
		"two small ones move less":        {[]uint64{9, 2, 3}, 7, map[string]uint64{"b": 2, "c": 3}},
		"all have to":                     {[]uint64{9, 2, 3}, 15, map[string]uint64{"a": 8, "b": 2, "c": 3}},
		"there is room":                   {[]uint64{4, 4}, 8, nil},
		"as many bytes, but fewer shares": {[]uint64{2, 2, 4}, 12, map[string]uint64{"c": 4}},
	} {
		t.Run(name, func(t *testing.T) {
			var law residency.Law
			gpus := []residency.GPU{{Room: 16 * gib, Rate: 12 * gib}}
			asks := residency.Share{Key: "asks", Bytes: []uint64{0}, There: []uint64{0}}
			shares := []residency.Share{asks}
			for i, n := range c.rest {
				shares = append(shares, residency.Share{Key: string(rune('a' + i)), Bytes: []uint64{n * gib}, There: []uint64{n * gib}})
			}
			law.Decide(second, gpus, shares)
			// It takes more than there is room for, so its gate is closed. Then it asks.
			shares[0].Bytes, shares[0].Done = []uint64{c.asks * gib}, true
			law.Decide(100*second, gpus, shares)
			law.Decide(101*second, gpus, shares)
			shares[0].Waits, shares[0].Done = true, false
			orders, _ := law.Decide(200*second, gpus, shares)
			gives := map[string]uint64{}
			for i, order := range orders[1:] {
				if order.State == residency.Leaving {
					gives[shares[i+1].Key] = order.Give[0] / gib
				}
			}
			if !maps.Equal(gives, c.gives) {
				t.Errorf("%v GiB are given, want %v", gives, c.gives)
			}
		})
	}
}

// TestKernelThatNeverEnds has a share whose work does not end with its turn: others enter all the same, and it is told.
func TestKernelThatNeverEnds(t *testing.T) {
	m := newMachine(t, residency.GPU{Room: 16 * gib, Rate: 12 * gib})
	w, p := busy()
	stuck, other := m.add("stuck", 1, w, p, 12*gib), m.add("other", 1, w, p, 12*gib)
	stuck.stuck = true
	told := false
	m.judge = func(m *machine) {
		fits(m)
		told = told || stuck.order.Late
	}
	m.run(300 * second)
	if !told || other.gpuTime < 100*second {
		t.Errorf("told %v; the other share ran for %d s", told, other.gpuTime/second)
	}
}
