package arbiter

import "math"

// Verdict is what Watch thinks of a share.
type Verdict int

// The verdicts, from good to bad.
const (
	Honest      Verdict = iota
	Suspect             // tells too little, but not for long enough to act upon; Replay.Assume(share, true)
	Understates         // has used clearly more than it told for most of a second or longer
	Exceeds             // has used clearly more than its budget for most of a second or longer, and not for one launch
)

const (
	// sustained is how long a share must deviate before there is a verdict. With samples of 1/6 s, the driver's lag of
	// 200 to 400 ms and shiftBack, the verdict comes within 2 s.
	sustained = 800 * ms
	// suspectTime is the unexplained GPU time that makes a share suspect, and clearTime the time for a verdict: more
	// than a share may have saved in its bucket and an honest launch or two of 50 ms.
	suspectTime = 60 * ms
	clearTime   = 120 * ms
	// The tolerances allow for whole percents, counters that sample, and switches between contexts.
	toleranceFixed = 0.03
	tolerancePart  = 0.1
	// The driver's samples and what the share tells may be so far apart in time, because use is told late.
	shiftBack  = 200 * ms
	shiftAhead = 200 * ms
	shiftStep  = 25 * ms

	// A launch that is under way for claimFrom is told before it ends, because its end is what its process tells of.
	claimFrom = 200 * ms
	// claimMost is the most that launches may use beyond the budget, all together, before idle time has paid it back.
	// A launch cannot be cut, but its share stays idle afterwards. Who says all the time that one is under way is
	// believed for so long.
	claimMost = 10_000 * ms

	// samplePeriod is the shortest time that a sample of the driver covers.
	samplePeriod = 1000 * ms / 6
	// unsampled is the most time between two samples of a busy share that none of them covers: the driver keeps only
	// the latest, and is asked so seldom.
	unsampled = 400 * ms

	// What was told is kept for historyLength steps of historyStep, which is longer than the driver's lag.
	historyLength = 128
	historyStep   = 15 * ms

	// biasTime is the time constant of the comparison that corrects own time. It corrects differences of biasFrom and
	// more that lasted for biasHeld, by biasMost at most. Below a use of biasLeast whole percents are too coarse.
	biasTime  = 4000 * ms
	biasFrom  = 0.08
	biasHeld  = 2000 * ms
	biasLeast = 0.05
	biasMost  = 1.25
	// Where the driver sees processes without a share at work, what these took is part of what the shares tell, and
	// nothing else takes it out. The comparison then corrects at once, as far as biasBeside, with a time constant of
	// besideTime. besideLeast is from which part of the GPU's time they count, and the share.
	besideTime  = 2000 * ms
	biasBeside  = 16
	besideLeast = 0.02
)

// Watch compares what shares tell with the driver's own figures. Its zero value is ready.
//
// The driver samples use over a sixth of a second in whole percents and tells it 200 to 400 ms later (nvml.h:
// nvmlDeviceGetProcessUtilization, samples between 1/6 s and 1 s). So no single sample is held against a share. Watch
// compares a sample with the most that the share told, or that its budget allowed, in any window of the sample's length
// near the sample. It adds up what the share used beyond that and subtracts what it stayed below, and only a sum that
// stays is a verdict. A neighbour that claims work which it does not do takes turns in Replay, so what a share tells
// becomes less than it was. Therefore of what Replay gave to others, inside the work that a share told, no more is held
// against it than these had by the driver. What one long launch uses is added up apart: an honest share pays it back, because it launches
// nothing more until its bucket is out of debt.
type Watch struct {
	shares map[string]*watched
}

type watched struct {
	own, budgeted float64 // ns since the beginning
	lost          float64 // ns that Replay gave to others while its work was under way
	claimed       float64 // ns of long launches that are, or were, under way
	claimedTo     uint64  // claims are counted up to here
	told          uint64
	history       []point // a ring of the last historyLength
	next          int
	sampled       uint64 // end of the driver's last sample
	busy          bool   // in that sample it was
	period        uint64 // what a sample covers: the shortest time between two in which it was busy; 0: not known

	under, over           float64 // ns used beyond what was told and beyond the budget
	underSince, overSince uint64
	lent                  float64 // ns used by long launches beyond the budget, and not paid back
	driver, said          float64 // ns, fading
	changed               uint64  // when its processes last came or went
	biasSince             uint64
	bias                  float64
	beside                bool // somebody without a share was at work, by the last sample
	overtold              overtold
}

// point is what had been told, budgeted, claimed and lost by some time.
type point struct {
	at                           uint64
	own, budgeted, claimed, lost float64
}

// Told is what a share told since the last call of [Watch.Tell] for it, and what it was budgeted.
type Told struct {
	// Own is GPU time in ns, [Usage].Told, not corrected by [Watch.Bias].
	Own uint64
	// Lost is the part of the real time of its measured work that Replay gave to others, ns.
	Lost uint64
	// Rate is that of its budget in parts per million, which is [Whole] for an unlimited share.
	Rate uint32
	// Open is since when the oldest work is under way that it tells of, 0 without any.
	Open uint64
}

// Sample is what the driver tells of a share's processes, by one sample or the mean of some.
type Sample struct {
	// At is when the last of them ended, which may be some hundred ms ago.
	At uint64
	// Busy is the part of the GPU's time, 0 to 1, that the share's processes had together.
	Busy float64
	// Count is how many samples these are, 1 or more.
	Count int
	// Others is the part that all other processes had, and Outside that of those without a share.
	Others, Outside float64
	// Hides is whether more of its processes were at work than tell of any.
	Hides bool
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

// Tell notes what a share told. The caller calls it in every round, also if that is nothing.
func (w *Watch) Tell(now uint64, share string, told Told) {
	s := w.of(share)
	if s.told != 0 && now > s.told {
		s.budgeted += float64(now-s.told) * float64(min(told.Rate, Whole)) / Whole
	}
	s.told = max(s.told, now)
	s.own += float64(told.Own)
	s.lost += float64(told.Lost)
	if open := told.Open; open != 0 && open+claimFrom <= s.told {
		s.claimed += float64(s.told - min(max(open, s.claimedTo), s.told))
		s.claimedTo = s.told
	}
	here := point{at: s.told, own: s.own, budgeted: s.budgeted, claimed: s.claimed, lost: s.lost}
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

// Changed notes that processes of a share came or went. The driver tells nothing of processes that have ended, so for a
// while its figure may be too low.
func (w *Watch) Changed(now uint64, share string) { w.of(share).changed = max(now, 1) }

// OldestOpen is since when the oldest work is under way that a share tells of, 0 without any. A share that also told
// something impossible is not believed; if that was a slip, the next round makes up for it.
func OldestOpen(share string, works []Work, wrong Fault) (oldest uint64) {
	if wrong != 0 {
		return 0
	}
	for i := range works {
		since := works[i].OpenSince
		if works[i].Share == share && since != 0 && (oldest == 0 || since < oldest) {
			oldest = since
		}
	}
	return oldest
}

// back is the point that lies by points before the next one.
func (s *watched) back(by int) *point { return &s.history[(s.next+historyLength-by)%historyLength] }

// before is the newest point that is not after at, or the oldest one.
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

// most is the most that was told, budgeted and claimed, in ns, in any window of the given length that ends near at. lost is
// how much more of what Replay gave to others than the part that these had, and own contains it.
func (s *watched) most(at, length uint64, others float64) (most point) {
	had := min(max(others, 0), 1) * float64(length)
	for end := at - min(at, shiftBack); end <= at+shiftAhead; end += shiftStep {
		from, to := s.before(end-min(end, length)), s.before(end)
		lost := max(min(to.lost-from.lost, float64(length))-had, 0)
		most.own = max(most.own, to.own-from.own+lost)
		most.lost = max(most.lost, lost)
		most.budgeted = max(most.budgeted, to.budgeted-from.budgeted)
		most.claimed = max(most.claimed, min(to.claimed-from.claimed, float64(length)))
	}
	return most
}

// Observe judges a share by what the driver tells. It ignores what is not later than the last that it told.
func (w *Watch) Observe(share string, told Sample) Verdict {
	s, at := w.of(share), told.At
	if at <= s.sampled || math.IsNaN(told.Busy) {
		return s.verdict()
	}
	if told.Busy > 0 && s.sampled != 0 {
		if covered := s.covered(at, told.Count); at-s.sampled > covered+unsampled {
			w.Observe(share, Sample{At: at - covered, Count: 1, Others: told.Others, Outside: told.Outside}) // the driver tells of no rest
		}
	}
	s.busy = told.Busy > 0
	length := at - s.sampled
	first := s.sampled == 0 || length > 2*sustained
	s.sampled = at
	if first || len(s.history) < 2 {
		return s.verdict()
	}
	used := min(max(told.Busy, 0), 1) * float64(length)
	s.overtell(at, length, &told)
	if used == 0 && s.under == 0 && s.over == 0 && s.lent == 0 {
		s.compare(at, length, 0, told.Outside) // nothing could be held against it
		return Honest
	}
	s.weigh(at, length, used, &told)
	s.compare(at, length, used, told.Outside)
	return s.verdict()
}

// weigh adds up what is held against the share.
func (s *watched) weigh(at, length uint64, used float64, told *Sample) {
	others := told.Others
	if told.Hides {
		others = 1 // who else was at work is not known
	}
	most := s.most(at, length, others)
	allowed := used*(1-tolerancePart) - toleranceFixed*float64(length)
	excess := allowed - most.budgeted - most.lost
	excused := min(max(excess, 0), most.claimed)
	s.lent = max(s.lent+excused+min(excess, 0), 0)
	s.under, s.underSince = drift(s.under, s.underSince, allowed-max(most.own, most.claimed), at)
	s.over, s.overSince = drift(s.over, s.overSince, excess-excused, at)
}

// covered is how much of the time since the last sample samples of a busy share cover. It remembers the shortest period
// of the driver's sampling that was seen.
func (s *watched) covered(at uint64, samples int) uint64 {
	count := uint64(max(samples, 1))
	if each := (at - s.sampled) / count; s.busy && each > samplePeriod*9/10 && (s.period == 0 || each < s.period) {
		s.period = each
	}
	return count * max(s.period, samplePeriod)
}

// drift adds to a sum that is never below 0 and remembers since when it is above 0.
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
	case s.over >= clearTime && s.sampled-s.overSince >= sustained, s.lent >= claimMost:
		return Exceeds
	case s.under >= suspectTime:
		return Suspect
	}
	return Honest
}

// compare follows the ratio of the driver's figures to the share's own. outside is the part of the GPU's time that
// processes without a share had.
func (s *watched) compare(at, length uint64, used, outside float64) {
	if beside := outside >= besideLeast; beside != s.beside { // what was before says nothing of now
		s.beside, s.driver, s.said = beside, 0, 0
	}
	constant, held, least, enough := float64(biasTime), biasHeld, 1/biasMost, biasLeast*biasTime
	if s.beside {
		constant, held, least, enough = besideTime, 0, 1.0/biasBeside, besideLeast*besideTime
	}
	fade := math.Exp(-float64(length) / constant)
	s.driver = s.driver*fade + used
	s.said = s.said*fade + s.before(at).own - s.before(at-min(at, length)).own
	unseen := s.driver < s.said && s.changed != 0 && at < s.changed+biasTime
	if s.driver < enough || s.said < enough || unseen || math.Abs(s.driver/s.said-1) < biasFrom {
		s.biasSince, s.bias = 0, 1
		return
	}
	if s.biasSince == 0 {
		s.biasSince = at
	}
	if at-s.biasSince >= uint64(held) {
		s.bias = min(max(s.driver/s.said, least), biasMost)
	}
}

// Bias is the factor, 0.8 to 1.25, by which to multiply the share's own time because the driver's figures steadily
// differ from it; beside processes without a share it can be as low as 1/16. It is 1 while the difference is within
// their noise.
func (w *Watch) Bias(share string) float64 {
	if s := w.shares[share]; s != nil {
		return s.bias
	}
	return 1
}

// Forget forgets a share that is gone.
func (w *Watch) Forget(share string) { delete(w.shares, share) }
