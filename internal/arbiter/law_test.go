package arbiter_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/divvy-gpu/divvy/internal/arbiter"
)

// settle lets a law see the same reports for half a second and returns its last decision.
func settle(shares []arbiter.Share) []arbiter.Budget {
	var law arbiter.Law
	var budgets []arbiter.Budget
	for now := sec; now < sec+sec/2; now += 5 * ms {
		budgets = law.Divide(now, shares)
	}
	return budgets
}

// share wants all it can get, or uses percent of the GPU, or rests at 0.
func share(key string, terms arbiter.Terms, percent int) arbiter.Share {
	report := arbiter.Report{Own: uint64(percent) * 5 * ms / 100, Busy: uint64(percent) * 5 * ms / 100, Active: percent > 0}
	if percent == 100 {
		report = arbiter.Report{Active: true, Wanted: true, Own: ms}
	}
	return arbiter.Share{Key: key, Terms: terms, Report: report}
}

func TestDivide(t *testing.T) {
	burst := func(cores, most int) arbiter.Terms {
		return arbiter.Terms{Policy: arbiter.Burst, Cores: cores, MaxCores: most}
	}
	guaranteed := func(cores, weight int) arbiter.Terms { return arbiter.Terms{Cores: cores, Weight: weight} }
	type want struct {
		rate, base float64
	}
	for _, test := range []struct {
		name   string
		shares []arbiter.Share
		want   []want
	}{
		{"a cap stays a cap", []arbiter.Share{share("a", fixed(30), 100)}, []want{{30, 30}}},
		{"what a fixed share leaves is lent and reserved at once", []arbiter.Share{share("a", fixed(30), 0), share("b", weighted(1), 100)},
			[]want{{30, 30}, {100, 70}}},
		{"weights", []arbiter.Share{share("a", weighted(1), 100), share("b", weighted(2), 100), share("c", weighted(4), 100)},
			[]want{{14.3, 14.3}, {28.6, 28.6}, {57.1, 57.1}}},
		{"a resting share's part by weight", []arbiter.Share{share("a", weighted(1), 100), share("b", weighted(2), 0), share("c", weighted(4), 100)},
			[]want{{20, 14.3}, {28.6, 28.6}, {80, 57.1}}},
		{"guarantee and weight", []arbiter.Share{share("a", guaranteed(50, 1), 100), share("b", weighted(1), 100)}, []want{{75, 75}, {25, 25}}},
		{"burst after weighted", []arbiter.Share{share("a", burst(20, 60), 100), share("b", weighted(1), 100)}, []want{{20, 20}, {80, 80}}},
		{"burst takes idle time up to its limit", []arbiter.Share{share("a", burst(20, 60), 100), share("b", weighted(1), 0)},
			[]want{{60, 20}, {80, 80}}},
		{"overcommitted guarantees shrink alike", []arbiter.Share{share("a", fixed(80), 100), share("b", fixed(40), 100)}, []want{{66.7, 66.7}, {33.3, 33.3}}},
		{"and grow back when one rests", []arbiter.Share{share("a", fixed(80), 100), share("b", fixed(40), 0)}, []want{{80, 66.7}, {33.3, 33.3}}},
		{"nobody has nothing", []arbiter.Share{share("a", fixed(100), 100), share("b", weighted(1), 100)}, []want{{100, 100}, {1, 1}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for i, budget := range settle(test.shares) {
				got := want{float64(budget.Rate) / 10000, float64(budget.Base) / 10000}
				if math.Abs(got.rate-test.want[i].rate) > 0.2 || math.Abs(got.base-test.want[i].base) > 0.2 {
					t.Errorf("%s: rate %.1f base %.1f, want %+v", test.shares[i].Key, got.rate, got.base, test.want[i])
				}
				if !budget.Limited || budget.Yield || budget.Beat {
					t.Errorf("%s: flags of %+v", test.shares[i].Key, budget)
				}
			}
		})
	}
}

func TestWhoIsAloneIsNotLimited(t *testing.T) {
	for terms, limited := range map[arbiter.Terms]bool{
		weighted(3): false, {Policy: arbiter.Burst, Cores: 10}: false,
		{Policy: arbiter.Burst, Cores: 10, MaxCores: 50}: true, fixed(100): false, fixed(99): true, offline(1): false,
	} {
		if got := settle([]arbiter.Share{share("a", terms, 100)})[0]; got.Limited != limited {
			t.Errorf("%+v: limited %v", terms, got.Limited)
		}
	}
}

// What the driver divides is limited by nobody, however many shares there are.
func TestFreeSharesAreNotLimited(t *testing.T) {
	free := arbiter.Terms{Policy: arbiter.Free}
	for _, got := range settle([]arbiter.Share{share("a", free, 100), share("b", free, 100), share("c", free, 100)}) {
		if got.Limited || got.Beat || got.Yield || got.Capped {
			t.Errorf("%+v", got)
		}
	}
}

func TestOnlineGoesFirst(t *testing.T) {
	got := settle([]arbiter.Share{share("on", weighted(1), 40), share("off", offline(1), 100), share("off2", offline(3), 100)})
	if on := got[0]; !on.Beat || on.Yield || on.Rate < arbiter.Whole || on.Depth < sec {
		t.Errorf("online: %+v", on)
	}
	for i, part := range []float64{0.6 * 25, 0.6 * 75} {
		off := got[i+1]
		if off.Beat || !off.Yield || off.Depth != ms/2 || math.Abs(float64(off.Rate)/10000-part) > 1 {
			t.Errorf("offline %d: %+v, want a rate of %v", i, off, part)
		}
	}
}

// TestIdleTimeIsLent: a share that uses less than it may leaves the rest to who wants it, in half a second.
func TestIdleTimeIsLent(t *testing.T) {
	got := settle([]arbiter.Share{share("light", weighted(1), 20), {
		Key: "hungry", Terms: weighted(1), Report: arbiter.Report{Own: 5 * ms / 2, Active: true, Wanted: true},
	}})
	if rate := float64(got[1].Rate) / 10000; rate < 77 || rate > 81 {
		t.Errorf("the hungry share gets %.1f of 80", rate)
	}
	if rate := float64(got[0].Rate) / 10000; math.Abs(rate-50) > 0.5 {
		t.Errorf("the light share may have %.1f of 50", rate)
	}
}

// TestRatesOfTheHungryFit: whatever shares there are and whatever they did, the hungry never get more than there is,
// everybody gets something, nobody more than its limit, and bases fit on the GPU.
func TestRatesOfTheHungryFit(t *testing.T) {
	seeds(t, 50, func(t *testing.T, _ uint64, random *rand.Rand) {
		var law arbiter.Law
		now := sec
		for range 200 {
			now += random.Uint64N(50 * ms)
			shares := make([]arbiter.Share, random.IntN(9))
			for i := range shares {
				shares[i] = arbiter.Share{
					Key: string(rune('a' + random.IntN(3)*9 + i)),
					Terms: arbiter.Terms{
						Policy: arbiter.Policy(random.IntN(3)), Cores: random.IntN(101), MaxCores: random.IntN(101),
						Weight: random.IntN(10), Offline: random.IntN(3) == 0,
					},
					Report: arbiter.Report{Own: random.Uint64N(100 * ms), Busy: random.Uint64N(100 * ms), Wanted: random.IntN(2) == 0, Active: random.IntN(2) == 0},
				}
			}
			hungry, bases := 0.0, 0.0
			for i, g := range law.Divide(now, shares) {
				s := shares[i]
				if g.Rate < arbiter.Whole/100 || g.Base < arbiter.Whole/100 || g.Base > arbiter.Whole || g.Rate > 2*arbiter.Whole {
					t.Fatalf("%+v has %+v", s, g)
				}
				if most := uint32(max(s.Cores, 1) * arbiter.Whole / 100); s.Policy == arbiter.Fixed && s.Cores < 100 && g.Rate > most {
					t.Fatalf("%+v has %+v over its cap", s, g)
				}
				if g.Burst < 2*ms || g.Burst > 40*ms {
					t.Fatalf("%+v may save %d ns", s, g.Burst)
				}
				if s.Wanted && !s.Offline && g.Rate <= arbiter.Whole {
					hungry += float64(g.Rate) / arbiter.Whole
				}
				bases += float64(g.Base) / arbiter.Whole
			}
			// One percent each is nobody's to lose.
			if slack := 0.01*float64(len(shares)) + 1e-3; hungry > 1+slack || bases > 1+slack {
				t.Fatalf("rates %v and bases %v of %+v", hungry, bases, shares)
			}
		}
	})
}

// Launches of unknown cost go one at a time where a cap or a neighbour must be protected from them, and nowhere else.
func TestCapped(t *testing.T) {
	fixed := func(cores int) arbiter.Terms { return arbiter.Terms{Policy: arbiter.Fixed, Cores: cores} }
	for name, test := range map[string]struct {
		terms, beside arbiter.Terms
		want          bool
	}{
		"a cap":                        {fixed(30), arbiter.Terms{}, true},
		"all of the GPU":               {fixed(100), arbiter.Terms{}, false},
		"by weight":                    {arbiter.Terms{Weight: 2}, fixed(30), false},
		"a guarantee":                  {arbiter.Terms{Cores: 30}, fixed(30), false},
		"a burst with an end":          {arbiter.Terms{Policy: arbiter.Burst, Cores: 10, MaxCores: 50}, arbiter.Terms{}, true},
		"a burst without":              {arbiter.Terms{Policy: arbiter.Burst, Cores: 10}, arbiter.Terms{}, false},
		"offline beside an online one": {arbiter.Terms{Offline: true}, arbiter.Terms{}, true},
		"offline beside its like":      {arbiter.Terms{Offline: true}, arbiter.Terms{Offline: true}, false},
	} {
		got := settle([]arbiter.Share{share("a", test.terms, 100), share("b", test.beside, 100)})[0].Capped
		if got != test.want {
			t.Errorf("%s: capped %v", name, got)
		}
	}
	if alone := settle([]arbiter.Share{share("a", arbiter.Terms{}, 100)})[0]; alone.Limited || alone.Capped {
		t.Errorf("alone and without a cap: %+v", alone)
	}
}
