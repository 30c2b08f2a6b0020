package arbiter_test

import (
	"math"
	"testing"

	"github.com/divvy-gpu/divvy/internal/arbiter"
)

// watched is the verdict and the bias after some seconds of equal samples, told 300 ms late.
func watched(seconds, driver, said, budgeted float64) (arbiter.Verdict, float64) {
	return watchedAs(seconds, said, budgeted, func(int) float64 { return driver })
}

// watchedAs is the same with samples that differ, by their number.
func watchedAs(seconds, said, budgeted float64, driver func(number int) float64) (arbiter.Verdict, float64) {
	var w arbiter.Watch
	verdict := arbiter.Honest
	sample, number := sec+sec/6, 0
	for now := sec; now < sec+uint64(seconds*float64(sec)); now += 5 * ms {
		w.Tell(now, "a", arbiter.Told{Own: uint64(said * float64(5*ms)), Rate: uint32(budgeted * arbiter.Whole)})
		if now > sample+300*ms {
			verdict = w.Observe("a", arbiter.Sample{At: sample, Busy: driver(number), Count: 1})
			sample, number = sample+sec/6, number+1
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
	} {
		if got, _ := watched(2, test.driver, test.said, test.budgeted); got != test.want {
			t.Errorf("%s: verdict %v after 2 s, want %v", test.name, got, test.want)
		}
	}
}

// A sample that is no number neither accuses a share nor hides what the others show.
func TestSampleThatIsNoNumber(t *testing.T) {
	driver := func(number int) float64 {
		if number == 3 {
			return math.NaN()
		}
		return 0.5
	}
	if got, _ := watchedAs(3, 0, 0.6, driver); got != arbiter.Understates {
		t.Errorf("a share that says nothing: %v", got)
	}
	if got, bias := watchedAs(3, 0.5, 0.5, driver); got != arbiter.Honest || math.IsNaN(bias) {
		t.Errorf("a share that says all: %v, %v", got, bias)
	}
}

// launching is the worst verdict on a share of 10 % that tells what it does, while busy says whether it runs and since
// when one launch is under way. A launch is told when it ends.
func launching(seconds uint64, busy func(now uint64) (bool, uint64)) (worst arbiter.Verdict, at uint64) {
	var w arbiter.Watch
	sample, used, ran, since := sec+sec/6, 0.0, uint64(0), uint64(0)
	var samples []float64
	for now := uint64(sec); now < seconds*sec; now += 5 * ms {
		runs, open := busy(now)
		own := uint64(0)
		switch {
		case runs && open == 0:
			own = 5 * ms
		case runs:
			ran, since = ran+5*ms, open
		}
		if ran > 0 && (!runs || open != since) {
			own, ran = own+ran, 0
		}
		w.Tell(now, "a", arbiter.Told{Own: own, Rate: arbiter.Whole / 10, Open: open})
		if runs {
			used += float64(5 * ms)
		}
		if now >= sample {
			samples = append(samples, used/float64(sec/6))
			used, sample = 0, sample+sec/6
		}
		if late := len(samples) - 2; late >= 0 && now >= sample-sec/6 && now < sample-sec/6+5*ms {
			verdict := w.Observe("a", arbiter.Sample{At: sample - 3*(sec/6), Busy: min(samples[late], 1), Count: 1})
			if verdict > worst && verdict >= arbiter.Understates {
				worst, at = verdict, now
			}
		}
	}
	return worst, at
}

// A launch that cannot be cut is no misuse, if the share pays it back.
func TestDebtPaidBackIsHonest(t *testing.T) {
	for _, length := range []uint64{100 * ms, 190 * ms, 210 * ms, 500 * ms, 2 * sec, 8 * sec} {
		every := 10 * length // at 10 %
		verdict, at := launching(60, func(now uint64) (bool, uint64) {
			begun := now - now%every
			return now-begun < length, begun + 1
		})
		if verdict != arbiter.Honest {
			t.Errorf("launches of %d ms: verdict %v after %d ms", length/ms, verdict, at/ms)
		}
	}
}

// Who goes on is found, by what it tells of ends, and at last also if it tells of none.
func TestDebtNotPaidBack(t *testing.T) {
	for name, test := range map[string]struct {
		busy   func(now uint64) (bool, uint64)
		within uint64
	}{
		"short launches":                    {func(uint64) (bool, uint64) { return true, 0 }, 3 * sec},
		"short launches, one after another": {func(now uint64) (bool, uint64) { return true, now - 50*ms }, 3 * sec},
		"one for ever":                      {func(uint64) (bool, uint64) { return true, sec / 2 }, 16 * sec},
		"long ones without a pause":         {func(now uint64) (bool, uint64) { return true, now - now%sec + 1 }, 16 * sec},
	} {
		verdict, at := launching(30, test.busy)
		if verdict < arbiter.Understates || at > test.within {
			t.Errorf("%s: verdict %v at %d ms", name, verdict, at/ms)
		}
	}
}

// The driver tells nothing of processes that have ended, so its lower figure for a job that is started again and again
// is no reason to count less of what the job tells.
func TestBiasOfChangingProcesses(t *testing.T) {
	for name, test := range map[string]struct{ every, driver, want float64 }{
		"always the same": {1e9, 0.24, 0.8}, "another every second": {1, 0.24, 1}, "uses more than it tells": {1, 0.36, 1.2},
	} {
		var w arbiter.Watch
		sample, changed := sec+sec/6, 0.0
		for now := uint64(sec); now < 12*sec; now += 5 * ms {
			if at := float64(now) / float64(sec); at > changed+test.every {
				w.Changed(now, "a")
				changed = at
			}
			w.Tell(now, "a", arbiter.Told{Own: 3 * 5 * ms / 10, Rate: arbiter.Whole})
			if now > sample+300*ms {
				w.Observe("a", arbiter.Sample{At: sample, Busy: test.driver, Count: 1})
				sample += sec / 6
			}
		}
		if got := w.Bias("a"); math.Abs(got-test.want) > 0.02 {
			t.Errorf("%s: bias %.3f, want %.2f", name, got, test.want)
		}
	}
}

// Beside processes without a share what a share tells contains their turns, and the driver's figure takes them out: at
// once, and no longer than they work.
func TestBiasBesideProcessesWithoutAShare(t *testing.T) {
	var w arbiter.Watch
	sample := sec + sec/6
	for now := uint64(sec); now < 20*sec; now += 5 * ms {
		outside, busy := 0.0, 0.3
		if sample > 5*sec && sample < 10*sec {
			outside, busy = 0.6, 0.1
		}
		w.Tell(now, "a", arbiter.Told{Own: 3 * 5 * ms / 10, Rate: arbiter.Whole})
		if now > sample+300*ms {
			w.Observe("a", arbiter.Sample{At: sample, Busy: busy, Count: 1, Others: outside, Outside: outside})
			sample += sec / 6
		}
		want := 1.0
		if now > 6500*ms && now < 10*sec {
			want = 1.0 / 3
		} else if now >= 5*sec && now < 11*sec {
			continue
		}
		if got := w.Bias("a"); math.Abs(got-want) > 0.02 {
			t.Fatalf("at %d ms: bias %.3f, want %.2f", now/ms, got, want)
		}
	}
}

// A share that is busy for a tenth of each second, of which the driver tells at once when it is busy, and a second late
// when it rests.
func TestRestsBetweenSamples(t *testing.T) {
	var w arbiter.Watch
	for now := uint64(sec); now < 30*sec; now += 5 * ms {
		own := uint64(0)
		if now%sec == 300*ms {
			own = 100 * ms // from 200 to 300 ms, told at its end
		}
		w.Tell(now, "a", arbiter.Told{Own: own, Rate: arbiter.Whole / 10})
		verdict := arbiter.Honest
		switch part := now % sec; {
		case part == 600*ms: // of the sample from 100 to 267 ms
			verdict = w.Observe("a", arbiter.Sample{At: now - 333*ms, Busy: 0.4, Count: 1})
		case part == 800*ms: // and of that to 433 ms
			verdict = w.Observe("a", arbiter.Sample{At: now - 366*ms, Busy: 0.2, Count: 1})
		case part%(200*ms) == 0:
			verdict = w.Observe("a", arbiter.Sample{At: now - sec, Busy: 0, Count: 1})
		}
		if verdict != arbiter.Honest || w.Bias("a") != 1 {
			t.Fatalf("at %d ms: verdict %v, bias %.2f", now/ms, verdict, w.Bias("a"))
		}
	}
}

// The driver keeps the latest sample only, so of a steady share every third or so is never told.
func TestSamplesThatAreMissed(t *testing.T) {
	var w arbiter.Watch
	for now := uint64(sec); now < 12*sec; now += 5 * ms {
		w.Tell(now, "a", arbiter.Told{Own: 3 * 5 * ms / 10, Rate: arbiter.Whole * 3 / 10})
		verdict := arbiter.Honest
		if part := (now - sec) % (500 * ms); part == 0 || part == 165*ms {
			verdict = w.Observe("a", arbiter.Sample{At: now - 300*ms, Busy: 0.3, Count: 1})
		}
		if verdict != arbiter.Honest || w.Bias("a") != 1 {
			t.Fatalf("at %d ms: verdict %v, bias %.2f", now/ms, verdict, w.Bias("a"))
		}
	}
}

// Two samples may come at once, and then the share was busy in both.
func TestSamplesInPairs(t *testing.T) {
	var w arbiter.Watch
	for now := uint64(sec); now < 12*sec; now += 5 * ms {
		w.Tell(now, "a", arbiter.Told{Own: 3 * 5 * ms / 10, Rate: arbiter.Whole * 3 / 10})
		verdict := arbiter.Honest
		switch (now - sec) % (500 * ms) {
		case 0:
			verdict = w.Observe("a", arbiter.Sample{At: now - 300*ms, Busy: 0.3, Count: 1})
		case 335 * ms:
			verdict = w.Observe("a", arbiter.Sample{At: now - 300*ms, Busy: 0.3, Count: 2})
		}
		if verdict != arbiter.Honest || w.Bias("a") != 1 {
			t.Fatalf("at %d ms: verdict %v, bias %.2f", now/ms, verdict, w.Bias("a"))
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
