package arbiter

const (
	// overtoldPart and overtoldFixed are how much less of what a share tells is compared: the driver's figures are whole
	// percents and late. What is less than that [Watch.Bias] corrects.
	overtoldPart  = 0.25
	overtoldFixed = 0.03
	// overtoldTime is the GPU time that must be told and be other shares' before the driver's figures stand for what a share tells,
	// and overtoldSpare the most that it can have told too little before: what long launches took is told late.
	overtoldTime  = 200 * ms
	overtoldSpare = 200 * ms
	// overtoldLeast is for how long they do the first time, and overtoldMost the longest time. It is twice as long each
	// time, unless the share was believed for as long before: meanwhile nobody can compare, and who lies again lies for
	// less than a second before it is found.
	overtoldLeast = 10_000 * ms
	overtoldMost  = 640_000 * ms
)

// overtold follows whether a share tells of clearly more than what other shares leave of the GPU's time by the driver's figures.
// Its own figure proves nothing: that leaves out processes which have ended, and what a neighbour's hidden ones took.
type overtold struct {
	sum    float64 // ns told that other shares had
	until  uint64  // it is not believed until then; 0 before the first time
	length uint64  // for how long it was not
}

// note compares what others left of the GPU's time in a sample with the least that was told near it, both in ns. While the
// share is not believed all of its intervals count as told, side by side, so one of the windows has to lie after that.
func (o *overtold) note(at, length uint64, least, left float64) {
	if at <= o.until || at+shiftAhead < o.until+length {
		return
	}
	o.sum += least*(1-overtoldPart) - overtoldFixed*float64(length) - left
	o.sum = max(o.sum, -overtoldSpare)
	if o.sum < overtoldTime {
		return
	}
	if o.length == 0 || at-o.until > o.length {
		o.length = overtoldLeast / 2
	}
	o.length = min(2*o.length, overtoldMost)
	o.sum, o.until = 0, at+o.length
}

// least is the least that was told, in ns, in any window of the given length that ends near at.
func (s *watched) least(at, length uint64) float64 {
	least := float64(length)
	for end := at - min(at, shiftBack); end <= at+shiftAhead; end += shiftStep {
		least = min(least, s.before(end).own-s.before(end-min(end, length)).own)
	}
	return least
}

// overtell takes up a sample for [Watch.Overtold]. Others are those with a share: what processes without one took lengthens
// honest work, and [Watch.Bias] corrects that.
func (s *watched) overtell(at, length uint64, told *Sample) {
	left := 1 - min(max(told.Others-max(told.Outside, 0), 0), 1)
	s.overtold.note(at, length, s.least(at, length), left*float64(length))
}

// Overtold reports whether a share told of so much that other shares had by the driver's figures that the driver's figure has to
// stand for it: see [Replay.Disregard]. It accuses nobody.
func (w *Watch) Overtold(share string) bool {
	s := w.shares[share]
	return s != nil && s.told < s.overtold.until
}
