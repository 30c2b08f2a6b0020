package pacing

import (
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

func TestBusyByProcess(t *testing.T) {
	at := time.Unix(1000, 0)
	newest, count, busy := busyByProcess([]nvml.Utilisation{
		{PID: 1, At: at, Busy: 1}, // known
		{PID: 1, At: at.Add(1), Busy: 0.5},
		{PID: 1, At: at.Add(3), Busy: 0.1},
		{PID: 2, At: at.Add(2), Busy: 0.4},
	}, at)
	if !newest.Equal(at.Add(3)) || count != 2 || len(busy) != 2 || busy[1] != 0.3 || busy[2] != 0.2 {
		t.Errorf("%v, %v", newest, busy)
	}
	if newest, count, busy := busyByProcess(nil, at); !newest.IsZero() || count != 0 || len(busy) != 0 {
		t.Errorf("%v, %v", newest, busy)
	}
}

// What a share does beside its library is its own in the law: the driver's
// figure, from the verdict on, and its bucket owes it.
func TestDriversFigureCounts(t *testing.T) {
	d := newDivision(t)
	honest := d.add("honest", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
	liar := d.add("liar", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
	work := &busy{pen: d.pen(honest)}
	own := uint64(2 * time.Millisecond)
	guilty := -1
	for round := range 800 { // of 5 ms
		d.pass(1, func() { work.interval(d.now-2*own, d.now, own) }) // half of it is the liar's
		if round%40 == 39 {
			d.loop.observe(firstID, d.now, d.now-uint64(250*time.Millisecond), 1, map[string]float64{"honest": 0.4, "liar": 0.6}, nil)
		}
		d.loop.mu.Lock()
		verdict := d.loop.tenants["liar"].shares[0].misuse.verdict
		if d.loop.tenants["honest"].shares[0].misuse.verdict != arbiter.Honest {
			t.Fatal("the honest one is accused")
		}
		d.loop.mu.Unlock()
		if guilty < 0 && verdict >= arbiter.Understates {
			guilty = round
		}
	}
	if guilty < 0 || time.Duration(guilty)*yieldTick > 2*time.Second {
		t.Fatalf("seen after %v", time.Duration(guilty)*yieldTick)
	}
	if got := *d.loop.Times("liar")[0].Percent; got < 55 || got > 65 {
		t.Errorf("the liar has %.1f %%", got)
	}
	if b := d.budget(liar, 0); b.Correction > -int64(time.Second) {
		t.Errorf("what it owes: %d", b.Correction)
	}
	if text := d.loop.accuse(agentconfig.OutsideReport)[0].text; !strings.Contains(text, "60%") {
		t.Errorf("told as %q", text)
	}
	// When it is gone, nobody is beside the honest one any more.
	d.remove("liar")
	d.add("third", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
	before := d.loop.Times("honest")[0].Used
	d.pass(100, func() { work.interval(d.now-own, d.now, own) })
	d.pass(2, nil)
	if got := d.loop.Times("honest")[0].Used - before; got < 80*own {
		t.Errorf("the honest one is found to use %d of %d ns alone", got, 100*own)
	}
}

// What a share launched while it had no limit is not counted, and not held
// against it when the GPU does it later.
func TestBacklogIsNoMisuse(t *testing.T) {
	d := newDivision(t)
	first := d.add("first", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
	d.pass(1, nil)
	d.add("second", shareOf(v1alpha1.PolicyFixed, 10, 1, v1alpha1.ClassOnline))
	work := &busy{pen: d.pen(first)}
	judge := func(rounds int, work func()) (worst arbiter.Verdict) {
		for range rounds {
			d.pass(40, work)
			d.loop.observe(firstID, d.now, d.now-uint64(250*time.Millisecond), 1, map[string]float64{"first": 0.9}, nil)
			worst = max(worst, d.loop.tenants["first"].shares[0].misuse.verdict)
		}
		return worst
	}
	if verdict := judge(15, nil); verdict != arbiter.Honest {
		t.Errorf("3 s of backlog: verdict %d", verdict)
	}
	own := 9 * uint64(yieldTick) / 10
	if verdict := judge(10, func() { work.interval(d.now-own, d.now, own) }); verdict != arbiter.Honest {
		t.Errorf("told work: verdict %d", verdict)
	}
	if verdict := judge(10, nil); verdict != arbiter.Understates {
		t.Errorf("2 s of silence: verdict %d", verdict)
	}
}

// A share that loses its limit with its neighbour counts nothing any more, and that is
// not held against it.
func TestWhoLosesItsLimitIsNotJudged(t *testing.T) {
	d := newDivision(t)
	first := d.add("first", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
	d.add("second", shareOf(v1alpha1.PolicyFixed, 10, 1, v1alpha1.ClassOnline))
	work := &busy{pen: d.pen(first)}
	own := 9 * uint64(yieldTick) / 10
	judge := func(rounds int, work func()) arbiter.Verdict {
		for range rounds {
			d.pass(40, work)
			d.loop.observe(firstID, d.now, d.now-uint64(250*time.Millisecond), 1, map[string]float64{"first": 0.9}, nil)
		}
		return d.loop.tenants["first"].shares[0].misuse.verdict
	}
	if verdict := judge(20, func() { work.interval(d.now-own, d.now, own) }); verdict != arbiter.Honest {
		t.Fatalf("told work: verdict %d", verdict)
	}
	d.remove("second")
	if verdict := judge(20, nil); verdict != arbiter.Honest || d.loop.tenants["first"].shares[0].limited() {
		t.Errorf("without a limit: verdict %d", verdict)
	}
}

// A sample of a process that has ended belongs to the tenant whose it was while it lived.
func TestSampleOfAnEndedProcess(t *testing.T) {
	_, p := (&court{}).judged(t, agentconfig.OutsideReport, "a")
	w := newWatcher(p)
	const nobody = 1 << 30 // no process has such a number
	w.met[nobody] = member{"a", w.rounds}
	if got := w.owner(nobody); got != "a" {
		t.Errorf("it is %q's", got)
	}
	for range presentKept + pidsKept {
		w.round(t.Context())
	}
	if got := w.owner(nobody); got != "" {
		t.Errorf("after a while it is %q's", got)
	}
}
