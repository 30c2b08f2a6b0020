package agent

import "github.com/divvy-gpu/divvy/internal/agent/control"

// highest are the largest totals of a share that were shown. A page that is damaged tells less than it did, and a total
// that falls is taken for one that began anew.
type highest struct {
	time     control.Time
	refusals control.Refusals
	turns    control.Turns
}

func raise(kept, shown *uint64) {
	*kept = max(*kept, *shown)
	*shown = *kept
}

// keep raises what is shown to what was shown before.
func (h *highest) keep(s *control.Share) {
	if s.Time != nil {
		for _, one := range []struct{ kept, shown *uint64 }{
			{&h.time.Used, &s.Time.Used},
			{&h.time.Charged, &s.Time.Charged},
			{&h.time.Entitled, &s.Time.Entitled},
			{&h.time.Waited, &s.Time.Waited},
			{&h.time.HeldBackTotal, &s.Time.HeldBackTotal},
			{&h.time.Yielded, &s.Time.Yielded},
			{&h.time.Launches, &s.Time.Launches},
			{&h.time.Overdrawn, &s.Time.Overdrawn},
		} {
			raise(one.kept, one.shown)
		}
	}
	if t := s.Turns; t != nil {
		raise(&h.turns.Turns, &t.Turns)
		raise(&h.turns.MovedIn, &t.MovedIn)
		raise(&h.turns.MovedOut, &t.MovedOut)
		raise(&h.turns.Moving, &t.Moving)
		raise(&h.turns.Held, &t.Held)
	}
	r := &h.refusals
	if s.Refusals == nil {
		if r.Count > 0 {
			told := *r
			s.Refusals = &told
		}
		return
	}
	s.Refusals.Count, s.Refusals.ByGPU = max(r.Count, s.Refusals.Count), max(r.ByGPU, s.Refusals.ByGPU)
	*r = *s.Refusals
}
