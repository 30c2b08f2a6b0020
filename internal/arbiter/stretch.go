package arbiter

// stretchMemory is over what real time inside intervals a share's stretch is smoothed.
const stretchMemory = 100 * ms

// Stretch is a share's own GPU time for each ns between its stamps, lately. Libraries learn costs between stamps, the
// neighbours' slices included, and multiply them by it when they charge. It is at most 1 and does not depend on what
// was charged: a cost that was guessed badly is learned, and must not be corrected twice. Its zero value is ready and
// stands for 1.
type Stretch struct{ own, busy float64 }

// Add takes what Replay finished.
func (s *Stretch) Add(u Usage) {
	s.own += float64(min(u.Measured, u.Busy))
	s.busy += float64(u.Busy)
	if s.busy > stretchMemory {
		keep := stretchMemory / s.busy
		s.own, s.busy = s.own*keep, s.busy*keep
	}
}

// PPM is the factor in parts per million, 1 % at least.
func (s *Stretch) PPM() uint32 {
	if s.busy == 0 {
		return Whole
	}
	return uint32(min(max(s.own/s.busy, 0.01), 1) * Whole)
}
