package arbiter

// Interval is a stretch in which a process had measured work on the GPU without a gap; Charged is what its bucket
// was charged for it.
type Interval struct{ Begin, End, Charged uint64 }

// Work is what one process tells of its work on the GPU, as read from its worker in the state page.
type Work struct {
	Key       string     // process: tenant, worker number and owner together, so that a new owner is a new key
	Share     string     // Key of its Share
	Count     uint32     // intervals ever written, modulo 2^32; the number of the last of Intervals
	Intervals []Interval // the newest, oldest first
	OpenSince uint64     // since when there is work that no interval tells yet; 0 without any
	OpenUntil uint64     // when that is expected to end
	// Unmeasured is the GPU time ever charged for work that no interval covers.
	Unmeasured uint64
}

// Usage is work that Replay finished since the last Advance: the share's correction grows by Charged - Own.
type Usage struct {
	Own, Charged uint64
	Measured     uint64 // the part of Own that intervals tell
	Busy         uint64 // real time that these intervals took, neighbours' slices included
	Told         uint64 // own time as the share told it: differs from Own for a share under Assume
	Fault        Fault  // what was wrong with what the share told, 0 for nothing
}

// Fault is a set of things that no honest process tells.
type Fault uint8

// The faults.
const (
	FaultBackwards Fault = 1 << iota // an interval ends before it begins or before an earlier one ended
	FaultFuture                      // an interval ends, or open work began, later than now
	FaultExcess                      // more work was told than time has passed
)

const (
	// sliceDefault is the time slice of NVIDIA's driver for a channel group that asks for none: 1024 us, as the
	// kernel module's source has it (open-gpu-kernel-modules, kernel_fifo, default runlist timeslice).
	sliceDefault = 1_024_000

	// lagMost is how far the replay may stay behind the present to wait for work that is not told yet. Work that takes
	// longer counts as running up to where the replay is.
	lagMost = 500 * ms
	// lagRunning is how far it stays behind for work that is expected to go on: long enough to wait for the exact end of
	// a launch of 50 ms beside one neighbour, and short enough that corrections come in pieces which fit in a bucket.
	lagRunning = 150 * ms
	// lagLeast is how long a process may still delay the replay after the replay has waited for it in vain.
	lagLeast = 10 * ms
	// openSlack is how late work may be told after it was expected to end: a process that has lost its processor
	// tells it when it runs again.
	openSlack = 50 * ms
	// futureSlack is how far beyond now an interval may end: now is taken before the pages are read.
	futureSlack = 100 * ms
	// seam is the longest gap between two intervals of a process in which the GPU may not have changed processes: the
	// commands between its last event and its next one take so long. In a longer gap a neighbour with work gets a
	// slice.
	seam = 50_000
	// overlapSlack is by how much two intervals of a process may overlap: events are placed on the clock with errors
	// of this order.
	overlapSlack = 1 * ms
	// pendingMost is how many intervals of one process are kept: as many as a state page can tell in the rounds of
	// lagMost.
	pendingMost = 2048
	// chargedMost bounds what counts as charged for one interval, so that sums cannot overflow.
	chargedMost = 3_600_000 * ms
)

// Replay finds each share's own GPU time. Its zero value is ready.
//
// A GPU gives slices in turn to the processes that have work, so the time between two events of one process may
// include its neighbours' slices. But an event is a command of the process itself: at the time of its stamp the
// process runs. Replay therefore plays the slices again, from stamp to stamp: at each begin and end the process that
// wrote the stamp has the GPU, and between stamps all processes inside an interval take slices in turn. A process
// whose long interval overlaps n - 1 others gets the n-th part of it. A kernel of 20 us inside a neighbour's interval
// is wholly its own and not its neighbour's.
//
// What is not told yet may change the past, so the replay stops where some process has work under way, and goes on when
// that work is told, or lagMost behind the present. State and time are bounded whatever the processes write: no
// process can make another's own time longer than that one's intervals, or delay it by more than lagMost.
type Replay struct {
	// Slice is the time slice that runnable processes take in turn, ns; 0 stands for 1,024,000, the default of
	// NVIDIA's driver.
	Slice uint64

	clock     uint64 // played up to here
	read      uint64 // now of the last Advance
	processes map[string]*process
	ordered   []*process          // the same, in the order in which they came: equal reports give equal results
	phantoms  map[string]*process // by share, see Assume
	ignored   map[string]bool     // by share, see Disregard
	turns     turns
	rounds    []round
	usage     map[string]Usage
	due       agenda
}

// process is what is known of one process on the GPU.
type process struct {
	key     string
	share   string
	phantom bool
	read    uint64 // the last Advance that had it

	count      uint32
	unmeasured uint64
	pending    []Interval // not played to their ends yet, in order
	ended      uint64     // end of the last interval that was accepted
	openSince  uint64
	openUntil  uint64
	lagLimit   uint64 // how far this process may hold the replay back

	inside  bool    // the replay's clock is inside pending[0], or inside open work
	own     float64 // its time since then
	outside uint64  // when it last left an interval
	left    uint64  // and what was left of its slice then
}

// Assume makes the replay treat a share as if it had work on the GPU all the time, whatever its processes tell. It is
// for a share that uses more by the driver's figures than it tells. The share's own time is then what such a process
// gets, and the others' own time is counted beside it. The caller withdraws it when the share is gone.
func (r *Replay) Assume(share string, busy bool) {
	p := r.phantoms[share]
	switch {
	case busy && p == nil:
		if r.phantoms == nil {
			r.phantoms = map[string]*process{}
		}
		p = &process{share: share, phantom: true, inside: true}
		r.phantoms[share] = p
		r.turns.join(p)
	case !busy && p != nil:
		r.turns.leave(p)
		delete(r.phantoms, share)
	}
}

// Disregard makes the replay give no turns to a share, whatever its processes tell. It is for a share that tells of more
// than it uses by the driver's figures, which would take the others' own time. The caller knows the share's own time by
// these figures. What was told of it before still counts.
func (r *Replay) Disregard(share string, ignored bool) {
	switch {
	case !ignored:
		delete(r.ignored, share)
	case r.ignored == nil:
		r.ignored = map[string]bool{share: true}
	default:
		r.ignored[share] = true
	}
}

// turnless reports whether what a share tells takes no turns.
func (r *Replay) turnless(share string) bool {
	_, assumed := r.phantoms[share]
	return assumed || r.ignored[share]
}

// Advance reads what the processes told and returns, by share, the work that is certain by now. now is the time just
// before the first of works was read. A share with nothing new has no entry. The map is valid until the next call.
func (r *Replay) Advance(now uint64, works []Work) map[string]Usage {
	if r.usage == nil {
		r.usage = map[string]Usage{}
	}
	clear(r.usage)
	r.turns.slice = r.Slice
	if r.turns.slice == 0 {
		r.turns.slice = sliceDefault
	}
	r.turns.slice = max(r.turns.slice, 1000)
	if r.processes == nil {
		r.processes = map[string]*process{}
		r.clock, r.read = now, now
		for i := range works {
			if r.processes[works[i].Key] == nil {
				r.add(&works[i], now)
			}
		}
		return r.usage
	}
	now = max(now, r.read)
	hidden, total := r.take(now, works)
	if now > r.read {
		r.rounds = append(r.rounds, newRound(r.read, now, hidden, total))
	}
	r.read = now
	r.play(r.horizon(now))
	r.settlePhantoms()
	return r.usage
}

// Played is the time up to which work was found by the last Advance, 0 before the first.
func (r *Replay) Played() uint64 { return r.clock }

// horizon is the time up to which nothing more will be told. The replay waits for a process with open work, but not
// while that work is expected to go on beside all that others have open: then only its end is unknown, and it counts
// as running up to lagRunning before now.
func (r *Replay) horizon(now uint64) uint64 {
	open := uint64(0)
	for _, p := range r.ordered {
		if p.openSince != 0 {
			open++
		}
	}
	horizon := now
	for _, p := range r.ordered {
		if p.openSince == 0 || p.openSince >= now || r.turnless(p.share) {
			continue
		}
		waits := now - p.openSince
		expected := open * min(max(p.openUntil, p.openSince)-p.openSince, lagMost)
		lag := min(p.lagLimit, lagRunning)
		switch {
		case waits <= lag:
			horizon = min(horizon, p.openSince)
			continue
		case waits < expected:
			// It runs.
		case waits <= min(p.lagLimit, expected+openSlack):
			horizon = min(horizon, max(p.openSince, r.clock))
			continue
		default:
			// The replay stops waiting for it, and waits less the next time.
			p.lagLimit = max(p.lagLimit/2, lagLeast)
			lag = p.lagLimit
		}
		horizon = min(horizon, now-min(now, lag))
		if runs := waits <= expected+openSlack; runs && !p.inside && len(p.pending) == 0 {
			r.enterOpen(p)
		} else if !runs {
			r.closeOpen(p)
		}
	}
	return max(horizon, r.clock)
}

// enterOpen lets a process take turns although the end of its work is not told yet.
func (r *Replay) enterOpen(p *process) {
	p.inside, p.own = true, 0
	r.turns.join(p)
}

// credit books finished work; busy is 0 for work without an interval.
func (r *Replay) credit(p *process, own, charged, busy uint64) {
	u := r.usage[p.share]
	u.Own += own
	if !p.phantom {
		u.Told += own
	}
	u.Charged += charged
	if busy > 0 {
		u.Measured += own
		u.Busy += busy
	}
	r.usage[p.share] = u
}

// told counts what a share under Assume told of itself.
func (r *Replay) told(share string, own uint64) {
	u := r.usage[share]
	u.Told += own
	r.usage[share] = u
}

func (r *Replay) fault(share string, f Fault) {
	u := r.usage[share]
	u.Fault |= f
	r.usage[share] = u
}

func (r *Replay) settlePhantoms() {
	for _, p := range r.phantoms {
		own := uint64(p.own)
		p.own -= float64(own)
		r.credit(p, own, 0, own)
	}
}
