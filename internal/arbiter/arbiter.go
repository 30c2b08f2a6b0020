// Package arbiter divides a GPU's time. It is pure: it computes budgets from what shares were promised and what they
// did. The caller reads clocks and the driver, and reads and writes the pages. Times are nanoseconds of
// CLOCK_MONOTONIC, GPU time is nanoseconds too.
//
// A round of the caller, every few milliseconds while anybody is active, is, per GPU:
//
//	usage := replay.Advance(now, works)      // own GPU time, from what the processes measured
//	watch.Tell(now, share, told)  // and at each of the driver's samples: watch.Observe(share, sample)
//	budgets := law.Divide(now, shares)       // until the next round
//
// The values of this package are for one goroutine at a time.
package arbiter

// Policy is how a share takes part in the division.
type Policy int

// The policies.
const (
	Weighted Policy = iota // guaranteed cores if any, and by weight what is left
	Fixed                  // its cores, never more
	Burst                  // its cores, and idle time above them up to MaxCores
	Free                   // what the driver gives it; all shares of the GPU are like this, or none
)

// Whole is all of a GPU's time, and a factor of one, in parts per million, as in the pages.
const Whole = 1_000_000

// Terms are what a share was promised on one GPU.
type Terms struct {
	Policy   Policy
	Cores    int  // guaranteed percent of the GPU's time, 0 to 100
	MaxCores int  // burst: most percent, 0 stands for 100
	Weight   int  // weighted: 1 or more, 0 stands for 1
	Offline  bool // takes what online shares leave
}

// Report is what is known of a share since the last decision.
type Report struct {
	Own    uint64 // its GPU time that Replay finished (Usage.Own), ns
	Busy   uint64 // real time that this work took, including its neighbours' slices (Usage.Busy)
	Wanted bool   // a launch waits, or waited, for its bucket or its depth: bucket.wanted moved
	Active bool   // it has or had work on the GPU: launches moved, a worker is open, or Own is not 0
}

// Share is one share of a GPU. Key tells it from the others and stays the same from one decision to the next.
type Share struct {
	Key string
	Terms
	Report
}

// Budget is what the caller writes into the share's budget in its config page.
type Budget struct {
	Limited bool   // launches are charged and wait
	Beat    bool   // the share tells of its work in its pulse page, because another share yields to it
	Yield   bool   // the share gives way to the pulses of every online share of this GPU
	Capped  bool   // launches of unknown cost go one at a time, because nothing else would hold them to the rate
	Rate    uint32 // parts per million of real time that the bucket gains
	Base    uint32 // the same while no arbiter lives
	Burst   uint64 // ns, the most that the bucket holds
	Depth   uint64 // ns of estimated work that a process may have unfinished
}
