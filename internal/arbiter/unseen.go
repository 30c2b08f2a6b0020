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
	// unlooked is the longest time between two calls of [Unseen.Tell] that is compared: a caller that decides again at
	// the end of a lease does so twice in it. What is told after a longer one may be too little.
	unlooked = 1000 * ms
)

// Unseen compares all that a GPU did with all that its shares told of. It finds the work of processes that end before the
// driver tells of them: its figures by process leave out the dead. Its zero value is ready.
type Unseen struct {
	watch    Watch
	begun    uint64  // when it was told of first: what the GPU did before is compared with nothing
	heard    uint64  // when it was told of last
	missing  float64 // ns, not taken yet
	last     uint64  // when some was missing last
	standing bool
}

// Tell notes what all shares together told since the last call, as [Watch.Tell]. rate is what processes that
// have just come or gone may have been charged for and not told: that is paid by their share. claimed is what launches
// under way may have taken by [Belief] of the shares.
//
// After a long time without a call it begins anew: who did not look knows nothing of that time.
func (w *Unseen) Tell(now, own uint64, rate uint32, claimed float64) {
	if w.begun == 0 || now > w.heard+unlooked {
		*w = Unseen{begun: max(now, 1)}
	}
	w.heard = max(w.heard, now)
	w.watch.of("").claimed += claimed
	w.watch.Tell(now, "", Told{Own: own, Rate: rate})
}

const (
	// doubtMost is for how long, all together, a share is believed that tells of launches under way while the driver sees
	// none of its processes at work: its figures are late. doubtEases is the part of the time by which that comes back.
	doubtMost  = 1500 * ms
	doubtEases = 0.05
)

// Belief is how much of what a share tells of launches under way is believed. A launch is told when it ends, so until
// then only the driver's figure for the share's processes confirms it: one that is not there says nothing for the time
// of others. Its zero value is ready.
type Belief struct {
	doubt float64 // ns for which it was believed unconfirmed
	told  float64 // ns that the share told besides, and that were not set against a claim
	at    uint64  // of the last call
	since uint64  // claims were taken up to here
}

// Take returns the GPU time, in ns, that launches of a share may have had since the last call. open is since when the oldest
// is under way, 0 without any, told what the share told since the last call, and busy the driver's latest figure for its
// processes, 0 to 1, which is of both.
func (c *Belief) Take(now, open, told uint64, busy float64) (ns float64) {
	passed := float64(now - min(max(c.at, 1), now))
	if c.at != 0 {
		c.doubt = max(c.doubt-passed*doubtEases, 0)
	}
	c.at = max(now, 1)
	c.told = min(c.told+float64(told), claimFrom)
	if open == 0 || open+claimFrom > now {
		return 0
	}
	length := float64(now - min(max(open, c.since), now))
	c.since = now
	seen := length * min(max(busy, 0), 1)
	unseen := min(length-seen, max(doubtMost-c.doubt, 0))
	c.doubt += unseen
	besides := min(c.told, seen+unseen)
	c.told -= besides
	return seen + unseen - besides
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
	if first || len(s.history) < 2 || at-length < w.known(s) {
		return
	}
	used := min(max(busy, 0), 1) * float64(length)
	most := s.most(at, length, 1)
	told := most.own + most.budgeted + most.claimed
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

// known is since when it is known what was told. Of launches that were under way at first, less may be.
func (w *Unseen) known(s *watched) uint64 { return max(w.begun+shiftBack, s.back(len(s.history)).at) }

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
