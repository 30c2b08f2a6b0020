package arbiter

import "math"

const (
	// toleranceWhole is for what a GPU does besides launches: copies, and switches between contexts.
	toleranceWhole = 0.05
	// missingLeast is the GPU time that must be missing before anything is concluded. It is so much because it is not
	// known whose it is, and because a busy machine tells late.
	missingLeast = 1000 * ms
	// missingHeld is for how long nothing more must be missing before what was is forgotten.
	missingHeld = 2000 * ms
)

// Unseen compares all that a GPU did with all that its shares told of. It finds the work of processes that end before the
// driver tells of them: its figures by process leave out the dead. Its zero value is ready.
type Unseen struct {
	watch    Watch
	missing  float64 // ns, not taken yet
	last     uint64  // when some was missing last
	standing bool
}

// Tell notes what all shares together told since the last call, as [Watch.Tell]. rate is what processes that
// have just come or gone may have been charged for and not told: that is paid by their share.
func (w *Unseen) Tell(now, own uint64, rate uint32, open uint64) {
	w.watch.Tell(now, "", own, rate, open)
}

// Observe takes up the driver's next sample of the whole GPU: busy is the part, 0 to 1, of its time.
func (w *Unseen) Observe(at uint64, busy float64) {
	s := w.watch.of("")
	if at <= s.sampled || math.IsNaN(busy) {
		return
	}
	length := at - s.sampled
	first := s.sampled == 0 || length > 2*sustained
	s.sampled = at
	if first || len(s.history) < 2 {
		return
	}
	used := min(max(busy, 0), 1) * float64(length)
	said, excused, claimed := s.most(at, length)
	told := max(said+excused, claimed)
	by := used*(1-tolerancePart) - toleranceWhole*float64(length) - told
	s.under, s.underSince = drift(s.under, s.underSince, by, at)
	if w.standing {
		w.missing = max(w.missing+used-told, 0) // all of it, or that little would stay free
	} else {
		w.missing = max(w.missing+by, 0)
	}
	if by > 0 {
		w.last = at
	}
	if at-min(w.last, at) > missingHeld {
		s.under, s.underSince, w.missing, w.standing = 0, 0, 0, false
	}
	w.standing = w.standing || w.missing >= missingLeast
}

// Suspects reports whether less was told than the GPU did. That alone proves nothing.
func (w *Unseen) Suspects() bool { return w.watch.of("").under >= suspectTime }

// Stands reports whether more was done than told for so long that somebody hides it.
func (w *Unseen) Stands() bool { return w.standing }

// Take returns the GPU time, in ns, of which nobody told, since the last call, if that stands.
func (w *Unseen) Take() uint64 {
	if !w.standing {
		return 0
	}
	missing := uint64(w.missing)
	w.missing = 0
	return missing
}

// Forget begins anew.
func (w *Unseen) Forget() { *w = Unseen{} }
