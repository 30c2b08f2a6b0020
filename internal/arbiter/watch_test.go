package arbiter_test

import (
	"math"
	"testing"

	"github.com/divvy-gpu/divvy/internal/arbiter"
)

// watched is the verdict and the bias after some seconds of equal samples, told 300 ms late.
func watched(seconds, driver, said, budgeted float64) (arbiter.Verdict, float64) {
	var w arbiter.Watch
	verdict := arbiter.Honest
	sample := sec + sec/6
	for now := sec; now < sec+uint64(seconds*float64(sec)); now += 5 * ms {
		w.Tell(now, "a", uint64(said*float64(5*ms)), uint32(budgeted*arbiter.Whole))
		if now > sample+300*ms {
			verdict = w.Observe(sample, "a", driver)
			sample += sec / 6
		}
	}
	return verdict, w.Bias("a")
}

func TestVerdicts(t *testing.T) {
	for _, test := range []struct {
		name                   string
		driver, said, budgeted float64
		want                   arbiter.Verdict
	}{
		{"as it says", 0.5, 0.5, 0.5, arbiter.Honest},
		{"within the driver's noise", 0.55, 0.5, 0.5, arbiter.Honest},
		{"says nothing", 0.5, 0, 0.6, arbiter.Understates},
		{"says half", 0.5, 0.25, 0.6, arbiter.Understates},
		{"uses more than budgeted and says so", 0.5, 0.5, 0.3, arbiter.Exceeds},
		{"says more than it uses", 0.2, 0.9, 0.5, arbiter.Honest},
		{"no number", math.NaN(), 0.5, 0.5, arbiter.Honest},
	} {
		if got, _ := watched(2, test.driver, test.said, test.budgeted); got != test.want {
			t.Errorf("%s: verdict %v after 2 s, want %v", test.name, got, test.want)
		}
	}
}

func TestBias(t *testing.T) {
	for _, test := range []struct{ seconds, driver, said, want float64 }{
		{10, 0.5, 0.5, 1}, {10, 0.52, 0.5, 1}, {10, 0.56, 0.5, 1.12}, {10, 0.9, 0.5, 1.25}, {10, 0.3, 0.5, 0.8}, {1.5, 0.6, 0.5, 1}, {10, 0.04, 0.02, 1},
	} {
		if _, got := watched(test.seconds, test.driver, test.said, 1); math.Abs(got-test.want) > 0.02 {
			t.Errorf("%+v: bias %.3f", test, got)
		}
	}
}
