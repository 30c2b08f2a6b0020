package arbiter

// stretchMemory is the estimated time of measured work over which a share's stretch is smoothed.
const stretchMemory = 100 * ms

// Stretch is a share's recent own GPU time for each ns that was estimated for its launches. Libraries learn costs as
// the time between stamps, which may include the neighbours' slices, so they charge the estimate times the stretch. It
// is at most 1, and no estimate counts for more than the real time that the work took: libraries learn badly guessed
// costs soon, and these must not be corrected twice. The zero value is ready and stands for 1.
type Stretch struct{ own, estimated float64 }

// Add counts what Replay finished.
func (s *Stretch) Add(u Usage) {
	charged := float64(u.Charged) - float64(u.Own) + float64(u.Measured)
	estimated := min(charged*Whole/float64(s.PPM()), float64(u.Busy))
	if estimated <= 0 {
		return
	}
	s.own += min(float64(u.Measured), estimated)
	s.estimated += estimated
	if s.estimated > stretchMemory {
		keep := stretchMemory / s.estimated
		s.own, s.estimated = s.own*keep, s.estimated*keep
	}
}

// PPM is the factor in parts per million, 1 % at least.
func (s *Stretch) PPM() uint32 {
	if s.estimated == 0 {
		return Whole
	}
	return uint32(min(max(s.own/s.estimated, 0.01), 1) * Whole)
}
