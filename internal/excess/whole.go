package excess

import "time"

// Whole follows what a GPU holds beyond what can be attributed to anybody: memory that
// only an open descriptor keeps or, where the driver hides what each process holds, all
// that goes beyond the grants. The zero value is ready.
type Whole struct {
	// base is the least that was ever beyond: what the driver takes for itself.
	base  uint64
	based bool
	since time.Time
	// least is the least that was beyond since then.
	least uint64
}

// baseMost bounds what is taken for the driver's own.
const baseMost = 1 << 30

// Read takes what the GPU has in use and what of it may be: the sum that the driver
// lists, or of the grants, and what pages tell beyond. It returns how much is too much,
// 0 for nothing.
func (w *Whole) Read(now time.Time, used, accounted uint64) uint64 {
	beyond := used - min(used, accounted)
	if !w.based || beyond < w.base {
		w.base, w.based = min(beyond, baseMost), true
	}
	beyond -= w.base
	if beyond <= LateCode {
		w.since = time.Time{}
		return 0
	}
	if w.since.IsZero() {
		w.since, w.least = now, beyond
	}
	w.least = min(w.least, beyond)
	if now.Sub(w.since) < lasting {
		return 0
	}
	return w.least
}

// Suspects reports whether another reading would decide.
func (w *Whole) Suspects(now time.Time) bool {
	return !w.since.IsZero() && now.Sub(w.since) < lasting
}

// Unknown says that a figure was late or missing.
func (w *Whole) Unknown() { w.since = time.Time{} }
