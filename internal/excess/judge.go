package excess

import (
	"math"
	"time"
)

// What a share may hold beyond its grant and beyond what its pages tell. The driver
// takes memory that nobody asks for: code that is loaded when a kernel is first
// launched, and contexts that are larger than the one that was measured.
const (
	// LateCode is how much that may be in a share's first process on a GPU, in bytes.
	LateCode = 512 << 20
	// LateCodeMore is how much in each further process for whose context the share
	// has room.
	LateCodeMore = 128 << 20
)

// Readings.
const (
	// looks is in how many readings in a row a share must hold more than its grant
	// before it is said to.
	looks = 2
	// lasting is for how long figures of the driver and of others must differ. It is
	// the time between two readings: what lasts longer, the others told in one.
	lasting = time.Second
	// Lag is how late the driver's figures may be. What was granted or told in that
	// time still counts.
	Lag = 2500 * time.Millisecond
	// Again is after how long, in the middle, a share that seems to hold too much is looked
	// at again.
	Again = 250 * time.Millisecond
	// sights is how often a process must be seen to begin to hold more than its share may
	// before the share is said to exceed, though the readings between found it to fit. A
	// figure that is wrong once or twice convicts nobody.
	sights = 3
	// remembered is for how long one of these counts.
	remembered = 20 * time.Second
)

// Tolerance is how much a share may hold beyond what it was granted.
func Tolerance(granted uint64, processes int, context uint64) uint64 {
	more := uint64(max(processes-1, 0))
	if context > 0 {
		more = min(more, granted/context)
	}
	return LateCode + more*LateCodeMore
}

// Reading is what one look found about a share of a GPU, in bytes.
type Reading struct {
	// Held is what the share's processes hold by the driver's list.
	Held uint64
	// Most is what that one of them holds which holds most. Figures of several processes
	// may be of several moments, and their sum of none.
	Most uint64
	// Told is what the share's pages say that it uses or is about to use, nil where
	// they cannot be read.
	Told *uint64
	// Granted is the share's limit, and Before what it may still hold since that was lowered
	// below what was in use, 0 if it was not. Before shrinks with what is given back.
	Granted, Before uint64
	// Processes are those of the share on the GPU.
	Processes int
	// Context is what a process's context takes.
	Context uint64
}

// Verdict is what a share is found to do, the worse the greater.
type Verdict uint8

// The verdicts.
const (
	Fits    Verdict = iota
	Differs         // holds more than its pages tell
	Exceeds         // holds more than was granted
)

// Judge follows one share of one GPU. The zero value is ready; one goroutine at a time
// may use it.
type Judge struct {
	told, granted recent
	// allowed is what the share may hold: its grant or, after that was lowered, what
	// the share has not given back yet.
	allowed uint64
	// seen are the latest readings in which a process began to hold more than the share
	// may, and most is the largest of what it held in them. beyond says that it did in the
	// last reading.
	seen   [sights]time.Time
	most   uint64
	beyond bool
	// over counts the readings in a row with more than the grant, and differing is the
	// first of those with more than the pages tell.
	over      int
	differing time.Time
	// low and high are what the pages told since then.
	low, high uint64
	// read is when the pages were read last.
	read    time.Time
	verdict Verdict
}

// Read judges one more reading. Readings come in the order of time.
func (j *Judge) Read(now time.Time, r Reading) Verdict {
	// What was lowered or given back counts for as long as the driver may tell late of it.
	j.allowed = j.granted.most(now, max(r.Granted, r.Before))
	tolerance := Tolerance(r.Granted, r.Processes, r.Context)
	j.over++
	if r.Held <= j.allowed+tolerance {
		j.over = 0
	}
	j.sight(now, r, tolerance)
	j.compare(now, r, tolerance)
	switch {
	case j.over >= looks || j.Again(now):
		j.verdict = Exceeds
	case j.differs(now):
		j.verdict = Differs
	case j.over == 0 && j.differing.IsZero():
		j.verdict = Fits
	}
	return j.verdict
}

// sight notes that a process begins to hold more than the share may.
func (j *Judge) sight(now time.Time, r Reading, tolerance uint64) {
	before := j.beyond
	j.beyond = min(r.Most, r.Held) > j.allowed+tolerance
	if !j.beyond || before {
		return
	}
	if now.Sub(j.seen[sights-1]) > remembered {
		j.most = 0
	}
	copy(j.seen[:], j.seen[1:])
	j.seen[sights-1], j.most = now, max(j.most, r.Held)
}

// Again reports whether the share takes more than it may again and again.
func (j *Judge) Again(now time.Time) bool {
	return !j.seen[0].IsZero() && now.Sub(j.seen[0]) <= remembered
}

// Beyond reports whether the last reading found more than the share may hold.
func (j *Judge) Beyond() bool { return j.over > 0 }

// Most is the most that the share was seen to hold of late beyond what it may.
func (j *Judge) Most() uint64 { return j.most }

// compare notes since when the share holds more than its pages told in the time for
// which the driver's figures may be late.
func (j *Judge) compare(now time.Time, r Reading, tolerance uint64) {
	if r.Told == nil || r.Held <= j.told.most(now, *r.Told)+tolerance {
		j.differing = time.Time{}
		if r.Told != nil {
			j.read = now
		}
		return
	}
	if j.differing.IsZero() {
		j.differing, j.low, j.high = now, *r.Told, *r.Told
		if now.Sub(j.read) > lasting+Again {
			j.high = math.MaxUint64 // what the pages told meanwhile is not known
		}
	}
	j.read, j.low, j.high = now, min(j.low, *r.Told), max(j.high, *r.Told)
}

// differs reports whether the share has held more than its pages tell for long enough:
// where these change much, the driver may be telling of any moment of late.
func (j *Judge) differs(now time.Time) bool {
	wait := lasting
	if j.high-j.low > LateCode/4 {
		wait += Lag
	}
	return !j.differing.IsZero() && !now.Before(j.differing.Add(wait))
}

// Unknown says that a figure was late or missing: what was counted begins anew, and
// nobody is accused.
func (j *Judge) Unknown() {
	j.over, j.differing, j.verdict = 0, time.Time{}, Fits
	j.seen, j.most, j.beyond = [sights]time.Time{}, 0, false
}

// Suspects reports whether another reading would decide.
func (j *Judge) Suspects() bool {
	return j.over > 0 && j.over < looks || !j.differing.IsZero() && j.verdict == Fits
}

// Allowed is what the share may hold, without the tolerance.
func (j *Judge) Allowed() uint64 { return j.allowed }

// recent remembers figures for as long as the driver may take to tell of them.
type recent struct {
	at    [recents]time.Time
	value [recents]uint64
	next  int
}

// recents is more than the readings in that time.
const recents = 32

// most adds a figure and returns the largest of late.
func (r *recent) most(now time.Time, value uint64) uint64 {
	r.at[r.next], r.value[r.next] = now, value
	r.next = (r.next + 1) % recents
	for i, at := range r.at {
		if now.Sub(at) <= Lag+lasting {
			value = max(value, r.value[i])
		}
	}
	return value
}
