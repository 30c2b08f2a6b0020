package arbiter

import "math"

// Verdict is what Watch thinks of a share.
type Verdict int

// The verdicts, from good to bad.
const (
	Honest      Verdict = iota
	Suspect             // says too little, not long enough to act upon; Replay.Assume(share, true)
	Understates         // uses clearly more than it says since most of a second or longer
	Exceeds             // uses clearly more than it was granted since most of a second or longer
)

const (
	// sustained is how long a share must be off until that is a verdict: with a sample of 1/6 s, the driver's lag of
	// 200 to 400 ms and shiftBack it is told within 2 s.
	sustained = 800 * ms
	// suspectTime is how much unexplained GPU time makes a suspect, and clearTime how much a verdict: more than a
	// share may have saved up in its bucket, plus an honest launch or two of 50 ms.
	suspectTime = 60 * ms
	clearTime   = 120 * ms
	// Tolerance: whole percents, counters that sample, contexts that are switched.
	toleranceFixed = 0.03
	tolerancePart  = 0.1
	// The driver's samples and the share's words may be this far apart: what is told late was used earlier.
	shiftBack  = 200 * ms
	shiftAhead = 200 * ms
	shiftStep  = 25 * ms

	// What is told is kept for historyLength steps of historyStep, longer than the driver's lag.
	historyLength = 128
	historyStep   = 15 * ms

	// biasTime is the time constant of the comparison that corrects own time, biasFrom the difference from which it
	// does, held for biasHeld, and biasLeast the use below which whole percents say too little.
	biasTime  = 4000 * ms
	biasFrom  = 0.08
	biasHeld  = 2000 * ms
	biasLeast = 0.05
	biasMost  = 1.25
)

// Watch compares what shares say with the driver's own figures. Its zero value is ready.
//
// The driver samples use over a sixth of a second in whole percents and tells it 200 to 400 ms later (nvml.h:
// nvmlDeviceGetProcessUtilization, samples between 1/6 s and 1 s). So no single sample is held against a share: what
// it used beyond the most that it said, or was granted, in any window of the sample's length near the sample is added
// up, what it stayed below is taken off again, and only a sum that stays is a verdict. A share whose launches take
// most of a second each while its rate is small cannot be told from one that exceeds its grant.
type Watch struct {
	shares map[string]*watched
}

type watched struct {
	own, granted float64 // ns since the beginning
	told         uint64
	history      []point // a ring of the last historyLength
	next         int
	sampled      uint64 // end of the driver's last sample

	under, over           float64 // ns beyond what was said and granted
	underSince, overSince uint64
	driver, said          float64 // ns, fading
	biasSince             uint64
	bias                  float64
}

// point is what had been said and granted at a moment.
type point struct {
	at           uint64
	own, granted float64
}

func (w *Watch) of(share string) *watched {
	if w.shares == nil {
		w.shares = map[string]*watched{}
	}
	s := w.shares[share]
	if s == nil {
		s = &watched{bias: 1}
		w.shares[share] = s
	}
	return s
}

// Tell notes what a share said and was granted since the last call for it: own GPU time (Usage.Told,
// not corrected by Bias) and the rate in parts per million that its budget held; an unlimited share's is Whole.
// To be called in every round, with own 0 if there is none.
func (w *Watch) Tell(now uint64, share string, own uint64, rate uint32) {
	s := w.of(share)
	if s.told != 0 && now > s.told {
		s.granted += float64(now-s.told) * float64(min(rate, Whole)) / Whole
	}
	s.told = max(s.told, now)
	s.own += float64(own)
	here := point{at: s.told, own: s.own, granted: s.granted}
	switch n := len(s.history); {
	case n > 1 && s.told-s.back(2).at < historyStep:
		*s.back(1) = here
		return
	case n < historyLength:
		s.history = append(s.history, here)
	default:
		s.history[s.next] = here
	}
	s.next = (s.next + 1) % historyLength
}

// back is the point so many before the next one.
func (s *watched) back(by int) *point { return &s.history[(s.next+historyLength-by)%historyLength] }

// before is the newest point that is not after a moment, or the oldest one there is.
func (s *watched) before(at uint64) point {
	n := len(s.history)
	if n == 0 {
		return point{}
	}
	for by := 1; by <= n; by++ {
		if p := s.back(by); p.at <= at {
			return *p
		}
	}
	return *s.back(n)
}

// most is the most that was said and granted, in ns, in any window of a length that ends near a moment.
func (s *watched) most(at, length uint64) (said, granted float64) {
	for end := at - min(at, shiftBack); end <= at+shiftAhead; end += shiftStep {
		from, to := s.before(end-min(end, length)), s.before(end)
		said = max(said, to.own-from.own)
		granted = max(granted, to.granted-from.granted)
	}
	return said, granted
}

// Observe takes one sample of the driver: busy is the part 0..1 of the GPU's time that the share's processes had
// together in the sample that ended at the moment at, which may be some hundred ms past. A sample that is not later
// than the last one is ignored.
func (w *Watch) Observe(at uint64, share string, busy float64) Verdict {
	s := w.of(share)
	if at <= s.sampled || math.IsNaN(busy) {
		return s.verdict()
	}
	length := at - s.sampled
	first := s.sampled == 0 || length > 2*sustained
	s.sampled = at
	if first || len(s.history) < 2 {
		return s.verdict()
	}
	used := min(max(busy, 0), 1) * float64(length)
	if used == 0 && s.under == 0 && s.over == 0 {
		s.compare(at, length, 0) // nothing could be held against it
		return Honest
	}
	said, granted := s.most(at, length)
	allowed := used*(1-tolerancePart) - toleranceFixed*float64(length)
	s.under, s.underSince = drift(s.under, s.underSince, allowed-said, at)
	s.over, s.overSince = drift(s.over, s.overSince, allowed-granted, at)
	s.compare(at, length, used)
	return s.verdict()
}

// drift adds to a sum that never is below 0, and keeps since when it is above it.
func drift(sum float64, since uint64, by float64, at uint64) (float64, uint64) {
	sum = min(max(sum+by, 0), sustained)
	switch {
	case sum == 0:
		return 0, 0
	case since == 0:
		return sum, at
	}
	return sum, since
}

func (s *watched) verdict() Verdict {
	switch {
	case s.under >= clearTime && s.sampled-s.underSince >= sustained:
		return Understates
	case s.over >= clearTime && s.sampled-s.overSince >= sustained:
		return Exceeds
	case s.under >= suspectTime:
		return Suspect
	}
	return Honest
}

// compare follows the ratio of the driver's figures to the share's own.
func (s *watched) compare(at, length uint64, used float64) {
	fade := math.Exp(-float64(length) / biasTime)
	s.driver = s.driver*fade + used
	s.said = s.said*fade + s.before(at).own - s.before(at-min(at, length)).own
	enough := biasLeast * biasTime
	if s.driver < enough || s.said < enough || math.Abs(s.driver/s.said-1) < biasFrom {
		s.biasSince, s.bias = 0, 1
		return
	}
	if s.biasSince == 0 {
		s.biasSince = at
	}
	if at-s.biasSince >= biasHeld {
		s.bias = min(max(s.driver/s.said, 1/biasMost), biasMost)
	}
}

// Bias is by what factor, 0.8 to 1.25, the share's own time is to be multiplied because the driver's figures differ
// from it steadily; 1 within their noise.
func (w *Watch) Bias(share string) float64 {
	if s := w.shares[share]; s != nil {
		return s.bias
	}
	return 1
}

// Forget drops what is known of a share that is gone.
func (w *Watch) Forget(share string) { delete(w.shares, share) }
