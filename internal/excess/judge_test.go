package excess

import (
	"math/rand/v2"
	"testing"
	"time"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// player reads for a judge at a pace.
type player struct {
	Judge
	now  time.Time
	pace time.Duration
}

func (p *player) read(held, told, granted uint64) Verdict {
	p.now = p.now.Add(p.pace)
	return p.Read(p.now, Reading{Held: held, Most: held, Told: &told, Granted: granted, Processes: 1, Context: 400 * mib})
}

func start() *player { return &player{now: time.Unix(1000, 0), pace: time.Second} }

func TestTwoLooksDecide(t *testing.T) {
	p := start()
	for i, want := range []Verdict{Fits, Exceeds, Exceeds} {
		if got := p.read(20*gib, 20*gib, 2*gib); got != want || p.Suspects() != (i == 0) {
			t.Errorf("reading %d: %d, want %d; suspects %t", i, got, want, p.Suspects())
		}
	}
	if got := p.read(gib, 2*gib, 2*gib); got != Fits {
		t.Errorf("afterwards: %d", got)
	}
}

func TestOneReadingDecidesNothing(t *testing.T) {
	p := start()
	for range 10 {
		if got := p.read(20*gib, 20*gib, 2*gib); got != Fits {
			t.Errorf("one: %d", got)
		}
		p.Unknown()
		if got := p.read(20*gib, 20*gib, 2*gib); got != Fits {
			t.Errorf("one after an unknown figure: %d", got)
		}
		if got := p.read(2*gib, 2*gib, 2*gib); got != Fits {
			t.Errorf("one that fits: %d", got)
		}
	}
}

// Who takes too much for less than the time between two readings, and gives back before
// the second, is convicted by the third such reading, at whatever moments the agent looks.
func TestFlickerIsConvicted(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		var j Judge
		sights, fits := 0, 1+r.IntN(3)
		now := time.Unix(1000, 0)
		for sights < 3 {
			for range fits {
				now = now.Add(time.Duration(about(r, lasting)) * step)
				if got := j.Read(now, Reading{Held: gib, Most: gib, Granted: gib, Processes: 1}); got != Fits {
					t.Fatalf("seed %d: %d after %d sights", seed, got, sights)
				}
			}
			now = now.Add(time.Duration(about(r, lasting)) * step)
			got := j.Read(now, Reading{Held: 18 * gib, Most: 18 * gib, Granted: gib, Processes: 1})
			sights++
			if want := sights == 3; (got == Exceeds) != want || !j.Beyond() || j.Again(now) != want {
				t.Fatalf("seed %d: %d after %d sights", seed, got, sights)
			}
		}
		if got := j.Read(now.Add(Again), Reading{Held: gib, Most: gib, Granted: gib, Processes: 1}); got != Exceeds || j.Beyond() || j.Most() != 18*gib {
			t.Errorf("seed %d: just afterwards %d, %d", seed, got, j.Most())
		}
		if got := j.Read(now.Add(remembered+lasting), Reading{Held: gib, Most: gib, Granted: gib, Processes: 1}); got != Fits {
			t.Errorf("seed %d: long afterwards %d", seed, got)
		}
	}
}

// Figures of two processes that come from different moments make a sum that never was; one
// that is wrong now and then convicts nobody, nor does what is long ago.
func TestLateFiguresConvictNobody(t *testing.T) {
	var mixed, seldom, unknown Judge
	now := time.Unix(1000, 0)
	for i := range 200 {
		now = now.Add(lasting)
		held, most := 4*gib, 4*gib
		if i%2 == 0 {
			held = 8 * gib
		}
		if got := mixed.Read(now, Reading{Held: uint64(held), Most: uint64(most), Granted: 4 * gib, Processes: 2}); got != Fits {
			t.Fatalf("reading %d, two moments: %d", i, got)
		}
		held = gib
		if i%int(remembered/lasting/2+1) == 0 {
			held = 8 * gib
		}
		if got := seldom.Read(now, Reading{Held: uint64(held), Most: uint64(held), Granted: 4 * gib, Processes: 1}); got != Fits {
			t.Fatalf("reading %d, now and then: %d", i, got)
		}
		if i%4 == 3 {
			unknown.Unknown()
			continue
		}
		held = gib
		if i%2 == 0 {
			held = 8 * gib
		}
		if got := unknown.Read(now, Reading{Held: uint64(held), Most: uint64(held), Granted: 4 * gib, Processes: 1}); got != Fits {
			t.Fatalf("reading %d, with unknown figures between: %d", i, got)
		}
	}
}

// A ledger that tells less is reported, also while all of it is within the grant.
func TestPagesThatTellLess(t *testing.T) {
	p := start()
	p.read(6*gib, 6*gib, 8*gib)
	var got Verdict
	for range 5 {
		got = p.read(6*gib, 0, 8*gib)
	}
	if got != Differs {
		t.Errorf("%d", got)
	}
}

// Pages that cannot be read accuse nobody, and protect nobody.
func TestPagesThatCannotBeRead(t *testing.T) {
	var j Judge
	now := time.Unix(1000, 0)
	for range 3 {
		now = now.Add(time.Second)
		if got := j.Read(now, Reading{Held: gib, Granted: 2 * gib, Processes: 1}); got != Fits {
			t.Errorf("within: %d", got)
		}
	}
	var got Verdict
	for range 3 {
		now = now.Add(time.Second)
		got = j.Read(now, Reading{Held: 4 * gib, Granted: 2 * gib, Processes: 1})
	}
	if got != Exceeds {
		t.Errorf("beyond: %d", got)
	}
}

// What a share held when its limit was lowered it may keep and give back, not take.
func TestLoweredLimits(t *testing.T) {
	p := start()
	read := func(held, granted, before uint64) Verdict {
		p.now = p.now.Add(p.pace)
		return p.Read(p.now, Reading{Held: held, Most: held, Told: &held, Granted: granted, Before: before, Processes: 1, Context: 400 * mib})
	}
	read(7*gib, 8*gib, 0)
	for range 10 {
		if got := read(7*gib, 2*gib, 7*gib); got != Fits {
			t.Fatalf("what it had: %d", got)
		}
	}
	for range 5 {
		if got := read(4*gib, 2*gib, 4*gib); got != Fits {
			t.Fatalf("less: %d", got)
		}
	}
	read(6*gib, 2*gib, 4*gib)
	if got := read(6*gib, 2*gib, 4*gib); got != Exceeds {
		t.Errorf("more again: %d", got)
	}
	if got := read(6*gib, 8*gib, 0); got != Fits {
		t.Errorf("with a greater limit: %d", got)
	}
	q, told := start(), uint64(7*gib)
	for range 5 {
		q.now = q.now.Add(time.Second)
		if got := q.Read(q.now, Reading{Held: 7 * gib, Told: &told, Granted: 2 * gib, Before: 8 * gib, Processes: 1}); got != Fits {
			t.Errorf("lowered before the agent began: %d", got)
		}
	}
}

// What others were given of it no share takes again, however soon it tries: neither at
// once nor after its limit was lowered once more.
func TestWhatWasGivenAwayIsNotTakenAgain(t *testing.T) {
	for name, c := range map[string]struct{ lowered, seen bool }{
		"at once": {false, true}, "after another change": {true, true}, "after one in the same reading": {true, false},
	} {
		p := start()
		p.pace = 250 * time.Millisecond
		read := func(held, granted, before uint64) Verdict {
			p.now = p.now.Add(p.pace)
			return p.Read(p.now, Reading{Held: held, Most: held, Told: &held, Granted: granted, Before: before, Processes: 1, Context: 400 * mib})
		}
		for range 20 {
			read(8*gib, 8*gib, 0)
		}
		for range 20 {
			if got := read(8*gib, gib, 8*gib); got != Fits {
				t.Fatalf("%s, what it had: %d", name, got)
			}
		}
		granted, before := uint64(gib), uint64(gib)
		if c.seen {
			read(gib, granted, before)
		}
		if c.lowered {
			granted, before = gib-mib, gib
		}
		verdict := Fits
		for range 20 { // its limit may be lowered again and again
			verdict = read(8*gib, granted, before)
			granted -= mib
		}
		if verdict != Exceeds {
			t.Errorf("%s: %d", name, verdict)
		}
	}
}

// honest is a share that stays within its limit, but for what the driver takes late.
// It does what programs do: it takes, gives back, and is set to other limits.
type honest struct {
	used, late, limit, before uint64
	past                      []uint64 // of used and late, one entry every 50 ms
}

func (h *honest) step(r *rand.Rand, most uint64) {
	switch r.IntN(8) {
	case 0:
		h.used += min(r.Uint64N(most), h.limit-min(h.limit, h.used))
	case 1:
		h.used = r.Uint64N(h.used + 1)
	case 2:
		h.late = min(h.late+r.Uint64N(200*mib), LateCode)
	case 3:
		if r.IntN(20) == 0 {
			before := max(h.limit, h.before)
			h.limit = 1 + r.Uint64N(most)
			h.before = 0
			if h.limit < h.used {
				h.before = before
			}
		}
	}
}

const step = 50 * time.Millisecond

// about is the steps of a random time from half of the mean to one and a half.
func about(r *rand.Rand, mean time.Duration) int {
	return int((mean/2 + time.Duration(r.Int64N(int64(mean)))) / step)
}

// follow has a judge read what an honest share does, at a pace that the agent keeps,
// from a driver whose figures are late, and returns the worst verdict. The share does
// something new every so many steps of 50 ms.
func follow(seed uint64, every int) (worst Verdict) {
	r := rand.New(rand.NewPCG(seed, 1))
	h := &honest{limit: 1 + r.Uint64N(40*gib)}
	lag := int(r.Int64N(int64((Lag - lasting) / step)))
	var j Judge
	now, next := time.Unix(1000, 0), 0
	for i := range 2000 {
		if i%every == 0 {
			h.step(r, 40*gib)
		}
		h.past = append(h.past, h.used+h.late)
		now = now.Add(step)
		if i < next {
			continue
		}
		next = i + about(r, lasting)
		told, held := h.used, h.past[max(0, i-lag)]
		if h.before > h.limit { // others may have what it gave back
			h.before = min(h.before, max(h.limit, told, held))
		}
		worst = max(worst, j.Read(now, Reading{
			Held: held, Most: held, Told: &told, Granted: h.limit, Before: h.before, Processes: 1, Context: 400 * mib,
		}))
		if j.Suspects() {
			next = i + about(r, Again)
		}
	}
	return worst
}

// No honest share is ever said to exceed its grant, however fast it takes and gives
// back and however late the driver tells. None that keeps what it takes for longer than
// the time between two readings is said to hold more than its pages tell.
func TestHonestSharesAreNeverAccused(t *testing.T) {
	for seed := range uint64(500) {
		if got := follow(seed, 1); got == Exceeds {
			t.Errorf("seed %d, always at it: %d", seed, got)
		}
		if got := follow(seed, int((lasting+Again)/(50*time.Millisecond))); got != Fits {
			t.Errorf("seed %d, at rest between: %d", seed, got)
		}
	}
}

// Whatever a page tells, a share that holds more than its grant and the tolerance is
// said to at the second reading.
func TestNoPageHidesAnExcess(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 2))
		p := start()
		granted := 1 + r.Uint64N(20*gib)
		for range r.IntN(5) {
			p.read(r.Uint64N(granted), r.Uint64(), granted)
		}
		held := granted + Tolerance(granted, 1, 400*mib) + 1 + r.Uint64N(gib)
		p.read(held, r.Uint64(), granted)
		if got := p.read(held, r.Uint64(), granted); got != Exceeds {
			t.Fatalf("seed %d: %d", seed, got)
		}
	}
}

// More processes than the share has room for do not widen the tolerance.
func TestToleranceIsBounded(t *testing.T) {
	for _, c := range []struct {
		granted   uint64
		processes int
		context   uint64
		want      uint64
	}{
		{2 * gib, 1, 400 * mib, LateCode},
		{2 * gib, 0, 400 * mib, LateCode},
		{2 * gib, 3, 400 * mib, LateCode + 2*LateCodeMore},
		{2 * gib, 1000, 400 * mib, LateCode + 5*LateCodeMore},
		{0, 1000, 400 * mib, LateCode},
	} {
		if got := Tolerance(c.granted, c.processes, c.context); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestMemoryOfNobody(t *testing.T) {
	var w Whole
	now := time.Unix(1000, 0)
	read := func(used, accounted uint64) uint64 {
		now = now.Add(Again)
		return w.Read(now, used, accounted)
	}
	for range 10 {
		if got := read(300*mib, 0); got != 0 {
			t.Errorf("the driver's own: %d", got)
		}
		if got := read(10*gib+300*mib, 10*gib); got != 0 {
			t.Errorf("what is accounted for: %d", got)
		}
	}
	first := now
	for {
		got := read(8*gib+300*mib, 2*gib)
		if got == 0 && now.Sub(first) <= lasting+2*Again {
			continue
		}
		if got != 6*gib || now.Sub(first) < lasting {
			t.Errorf("%d after %s", got, now.Sub(first))
		}
		break
	}
	if got := read(2*gib, 2*gib); got != 0 {
		t.Errorf("afterwards: %d", got)
	}
	for range 3 {
		read(8*gib, 2*gib)
	}
	w.Unknown()
	if got := read(8*gib, 2*gib); got != 0 {
		t.Errorf("after an unknown figure: %d", got)
	}
}

// A GPU on which memory is held by nobody already when the agent starts is told too.
func TestMemoryOfNobodyFromTheStart(t *testing.T) {
	var w Whole
	now, got := time.Unix(1000, 0), uint64(0)
	for range 10 {
		now = now.Add(Again)
		got = w.Read(now, 6*gib, 0)
	}
	if got != 5*gib {
		t.Errorf("%d", got)
	}
}
