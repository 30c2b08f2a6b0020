package pacing

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// found is who was met in looks every 100 ms while all of the GPU's time was missing.
func found(looks int, brief map[string]int, unknown int, seen ...string) *presence {
	p := newPresence()
	p.begin(1)
	p.looks, p.unknown, p.missing = looks, unknown, uint64(looks)*uint64(lookMean)
	for tenant, n := range brief {
		p.brief[tenant], p.seen[tenant] = n, true
	}
	for _, tenant := range seen {
		p.seen[tenant] = true
	}
	return p
}

func TestProof(t *testing.T) {
	type looks = map[string]int
	for name, c := range map[string]struct {
		p      *presence
		enough bool
		want   string
	}{
		"nobody was met":                 {found(30, nil, 0), true, ""},
		"the only share stays":           {found(30, nil, 0, "a"), true, ""},
		"its short processes":            {found(30, looks{"a": 25}, 2), true, "a"},
		"and another that stays":         {found(30, looks{"a": 25}, 0, "b"), true, "a"},
		"some short ones, not enough":    {found(30, looks{"a": 10}, 0), true, ""},
		"not looks enough":               {found(15, looks{"a": 15}, 0), false, ""},
		"somebody without a share":       {found(30, looks{"a": 25}, 0, ""), true, ""},
		"the same, at once":              {found(3, nil, 0, ""), true, ""},
		"a short one without a share":    {found(30, looks{"a": 25, "": 1}, 0), true, ""},
		"a share of another GPU":         {found(30, looks{"a": 25}, 0, "c"), true, ""},
		"two with short ones":            {found(30, looks{"a": 20, "b": 20}, 0), true, ""},
		"another with a few":             {found(30, looks{"a": 20, "b": 8}, 0), true, ""},
		"many were gone before they had": {found(30, looks{"a": 20}, 8), true, ""},
	} {
		if enough, got := c.p.judge(1+uint64(c.p.looks)*uint64(lookMean), []string{"a", "b"}); got != c.want || enough != c.enough {
			t.Errorf("%s: %v, %q, want %q", name, enough, got, c.want)
		}
	}
}

func TestPresence(t *testing.T) {
	p := newPresence()
	p.meet(1, map[int]string{1: "a", 2: "b"}, 0)
	p.meet(2, map[int]string{1: "a", 2: "b"}, 1)
	if len(p.brief) != 0 || len(p.there) != 2 || p.looks != 2 || p.unknown != 1 {
		t.Errorf("%+v", p)
	}
	p.meet(3, map[int]string{1: "b"}, 0) // the number is another process's now
	if p.brief["a"] != 2 || p.brief["b"] != 2 || len(p.there) != 1 || p.there[1].tenant != "b" {
		t.Errorf("%+v", p)
	}
	p.meet(4+briefFor, nil, 0) // it stayed for long
	if p.brief["b"] != 2 {
		t.Errorf("%+v", p)
	}
	p.miss(10, 2, 3)
	if p.missing != 10 {
		t.Errorf("%+v", p)
	}
	p.begin(5)
	if p.miss(10, 4, 6); p.missing != 0 {
		t.Errorf("what was missing before the looks began counts: %+v", p)
	}
}

// A process that knows when the last look was cannot keep out of the next one's way: in
// whatever time after a look, the next comes in proportion to it.
func TestLooksComeAtAnyMoment(t *testing.T) {
	const n = 20000
	var within, later, alive int
	for range n {
		switch after := lookAfter(); {
		case after < lookMean/2:
			within++
		case after < lookMean:
			later++
			fallthrough
		default:
			alive++
		}
	}
	first, second := float64(within)/n, float64(later)/float64(alive)
	if first < 0.36 || first > 0.43 || second < 0.36 || second > 0.43 {
		t.Errorf("within half the mean %.2f, in the next half %.2f; want 0.39 each", first, second)
	}
}

// samplesOf are the driver's latest of a GPU that is busy for so much of the time.
func samplesOf(busy float64) (samples []nvml.Sample) {
	wall := time.Now()
	for _, age := range []time.Duration{800, 600, 400} {
		samples = append(samples, nvml.Sample{At: wall.Add(-age * time.Millisecond), Busy: busy})
	}
	return samples
}

// hide has the GPU do what nobody tells of, for so many rounds of 5 ms, and asks who did it.
// Who is met in look number n, one every 100 ms, is told by who.
func (d *division) hide(busy float64, rounds int, who func(n int) map[int]string) (said string) {
	p := newPresence()
	for round := range rounds {
		d.pass(1, nil)
		if round%20 == 0 {
			p.meet(d.now, who(round/20), 0)
		}
		if round%120 != 119 {
			continue
		}
		if d.loop.observeWhole(firstID, d.now, samplesOf(busy), time.Now()) {
			if text := d.loop.blame(firstID, p); text != "" {
				said += text + "\n"
			}
		}
	}
	return said
}

// short is a tenant whose processes are in one look each.
func short(tenant string) func(int) map[int]string {
	return func(n int) map[int]string { return map[int]string{1 + n%100: tenant} }
}

// Whose short processes were met again and again pays for what is missing, and no process
// is killed for it.
func TestWhoHidesWorkPays(t *testing.T) {
	c := &court{}
	d, p := c.judged(t, agentconfig.OutsideKill, "liar", "other")
	if said := d.hide(0.9, 2400, short("liar")); !strings.Contains(said, "one of the 2 shares") || strings.Contains(said, " 0%") {
		t.Errorf("said %q", said)
	}
	liar, other := d.all[0], d.all[1]
	if owed := -d.budget(liar, 0).Correction; owed < int64(5*time.Second) || owed > int64(11*time.Second) {
		t.Errorf("it owes %v", time.Duration(owed))
	}
	if owed := -d.budget(other, 0).Correction; owed != 0 {
		t.Errorf("the other owes %v", time.Duration(owed))
	}
	p.answerMisuse(t.Context())
	p.answerMisuse(t.Context())
	if len(c.told) != 1 || !strings.Contains(c.told[0].Text, "end within moments") || len(c.answered) != 0 {
		t.Errorf("told %+v, answered %q", c.told, c.answered)
	}
	if text := p.Times("liar")[0].Fault; text == "" || strings.Contains(text, "killed") {
		t.Errorf("shown as %q", text)
	}
	// Figures that are missing accuse nobody, and nothing was done that must be ended.
	d.loop.unknowWhole(firstID)
	before := d.budget(liar, 0).Correction
	d.pass(10, nil)
	d.loop.blame(firstID, newPresence())
	p.answerMisuse(t.Context())
	if m := d.loop.tenants["liar"].shares[0].misuse; m.unseen != 0 || m.text != "" || d.budget(liar, 0).Correction != before {
		t.Errorf("known is %+v", m)
	}
}

// What nobody was seen to do is told of its GPU, and nobody pays: a stranger whose
// processes keep out of sight, or one who was seen once, is no fault of the only share.
func TestWhatIsOnlyInferredIsTold(t *testing.T) {
	for name, who := range map[string]func(int) map[int]string{
		"nobody was seen":          func(int) map[int]string { return nil },
		"the share's stays":        func(int) map[int]string { return map[int]string{1: "honest"} },
		"a few of the share's end": func(n int) map[int]string { return map[int]string{1 + n/30: "honest"} },
		"a stranger among them": func(n int) map[int]string {
			if n%10 == 3 {
				return map[int]string{900: ""}
			}
			return short("honest")(n)
		},
	} {
		c := &court{}
		d, p := c.judged(t, agentconfig.OutsideKill, "honest")
		if said := d.hide(0.9, 4000, who); !strings.Contains(said, "the share on it, or somebody without one") {
			t.Errorf("%s: said %q", name, said)
		}
		p.answerMisuse(t.Context())
		if owed := d.budget(d.all[0], 0).Correction; owed != 0 || len(c.told) != 0 || len(c.answered) != 0 {
			t.Errorf("%s: it owes %d; told %+v, answered %q", name, owed, c.told, c.answered)
		}
	}
}

// What a process without a share does, which lives and which the driver tells of, is hidden by nobody. It hides nothing either:
// what is done besides is told of.
func TestWorkOutsideSharesIsNotHidden(t *testing.T) {
	for name, c := range map[string]struct {
		outside float64
		once    bool
		said    bool
	}{
		"it does all of it":               {0.9, false, false},
		"it does a little":                {0.3, false, true},
		"it did so once, as was told":     {0.9, true, true},
		"the driver tells of no stranger": {0, false, true},
	} {
		d, _ := (&court{}).judged(t, agentconfig.OutsideReport, "a", "b")
		said := false
		for round := range 2400 {
			if round%80 == 0 && (!c.once || round == 0) {
				d.loop.noteOutside(firstID, d.now, c.outside)
			}
			d.pass(1, nil)
			if round%120 == 119 && d.loop.observeWhole(firstID, d.now, samplesOf(0.9), time.Now()) {
				said = d.loop.blame(firstID, newPresence()) != "" || said
			}
		}
		if said != c.said {
			t.Errorf("%s: said %v", name, said)
		}
	}
}

// A neighbour whose processes come and go excuses so much for each, and not its whole rate.
func TestComingAndGoingExcusesLittle(t *testing.T) {
	c := &court{}
	d, _ := c.judged(t, agentconfig.OutsideReport, "a", "b", "c")
	accomplice := d.pen(d.all[0])
	owner := uint32(0)
	for round := range 2400 { // one comes or goes each second; what it excuses is 50 ms of 300
		if round%200 == 0 {
			owner++
			accomplice.u32(workerWord(0, 0, page.OffsetOfWorkerOwner), owner)
		}
		d.pass(1, nil)
		if round%120 == 119 {
			d.loop.observeWhole(firstID, d.now, samplesOf(0.3), time.Now())
		}
	}
	if g := d.loop.gpus[firstID]; !g.whole.Stands() {
		t.Error("a neighbour's processes that come and go hide what others do")
	}
}

// Nothing is concluded while what one of the shares does is not counted, or not known.
func TestNothingIsConcludedOfWhatIsNotCounted(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(d *division, s *shareTime) error
		said  bool
	}{
		"all is counted":             {func(*division, *shareTime) error { return nil }, true},
		"it got its limit just now":  {func(_ *division, s *shareTime) error { s.misuse.uncounted = math.MaxUint64; return nil }, false},
		"it tells too little anyway": {func(_ *division, s *shareTime) error { s.misuse.verdict = arbiter.Understates; return nil }, false},
		"it tells what cannot be": {func(_ *division, s *shareTime) error {
			s.faulted, s.misuse.told, s.misuse.busy = math.MaxUint64, math.MaxUint64, 0.8
			return nil
		}, false},
		"its pages are damaged": {func(d *division, _ *shareTime) error { return os.Truncate(tenantdir.Dir(d.all[1].Dir).State(), 0) }, false},
		"its pages are damaged, and the driver sees that it does nothing": {func(d *division, s *shareTime) error {
			s.misuse.told, s.misuse.busy = math.MaxUint64, 0
			return os.Truncate(tenantdir.Dir(d.all[1].Dir).State(), 0)
		}, true},
		"its pages are damaged, and it did all of that": {func(d *division, s *shareTime) error {
			s.misuse.told, s.misuse.busy = math.MaxUint64, 0.9
			return os.Truncate(tenantdir.Dir(d.all[1].Dir).State(), 0)
		}, false},
		"it tells too little, and the driver sees what it does": {func(_ *division, s *shareTime) error {
			s.misuse.told, s.misuse.busy, s.misuse.verdict = math.MaxUint64, 0.2, arbiter.Understates
			return nil
		}, true},
		"it tells too much, and the driver sees what it does": {func(_ *division, s *shareTime) error {
			s.misuse.told, s.misuse.busy, s.misuse.ignored = math.MaxUint64, 0.2, true
			return nil
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			d, _ := (&court{}).judged(t, agentconfig.OutsideReport, "a", "b")
			if err := c.spoil(d, d.loop.tenants["b"].shares[0]); err != nil {
				t.Fatal(err)
			}
			if said := d.hide(0.9, 1200, short("a")); (said != "") != c.said || c.said != (d.budget(d.all[0], 0).Correction != 0) {
				t.Errorf("said %q, and it owes %d", said, -d.budget(d.all[0], 0).Correction)
			}
		})
	}
}

// Nothing is concluded of a share without a limit, however often it is decided anew: what it does is not counted.
func TestUncountedWorkHidesNothing(t *testing.T) {
	d := newDivision(t)
	d.add("free", shareOf("weighted", 0, 1, "online"))
	d.pass(1, nil)
	set := func(n int) map[int]string { // its user changes its weight
		d.all[0].Shares = []backend.Share{shareOf("weighted", 0, 1+n%2, "online")}
		d.publish()
		return short("free")(n)
	}
	if said := d.hide(0.9, 1200, set); said != "" || d.budget(d.all[0], 0).Correction != 0 {
		t.Errorf("said %q", said)
	}
}

// An agent that has just started, or that did not run for a while, knows nothing of what the driver's samples say of the
// time before: shares that work honestly all along are accused of nothing.
func TestTimeWithoutAnAgentIsNotJudged(t *testing.T) {
	d, _ := (&court{}).judged(t, agentconfig.OutsideReport, "a", "b")
	work := &busy{pen: d.pen(d.all[0])}
	kept := func(length time.Duration) (samples []nvml.Sample) { // what the driver keeps, of a GPU that is busy always
		for wall, age := time.Now(), length; age >= 300*time.Millisecond; age -= 170 * time.Millisecond {
			samples = append(samples, nvml.Sample{At: wall.Add(-age), Busy: 0.95})
		}
		return samples
	}
	live := func(rounds int, asked time.Duration) {
		t.Helper()
		for round := range rounds {
			d.pass(1, func() { work.interval(d.now-uint64(yieldTick), d.now, uint64(yieldTick)) })
			if round%160 != 159 {
				continue
			}
			if d.loop.observeWhole(firstID, d.now, kept(asked), time.Now()) {
				t.Fatalf("in round %d somebody is suspected: %s", round, d.loop.blame(firstID, newPresence()))
			}
			asked = 1200 * time.Millisecond
		}
	}
	live(1600, 1200*time.Millisecond)
	d.restart()
	live(1600, 15*time.Second)
	d.now += uint64(3 * time.Second) // it was stopped
	live(1600, 4*time.Second)
}
