package arbiter

// Law divides the time of one GPU. Its zero value is ready. It keeps nothing but the smoothed demand of each share,
// so one that starts again after a pause decides as well within 50 ms.
type Law struct{}

// Divide decides the budgets of all shares of the GPU, in their order. Calls may come late or irregularly.
func (l *Law) Divide(now uint64, shares []Share) []Grant { return make([]Grant, len(shares)) }

// Interval is a stretch in which a process had measured work on the GPU without a gap; Charged is what its bucket
// was charged for it.
type Interval struct{ Begin, End, Charged uint64 }

// Work is what one process tells of its work on the GPU: the view of its worker record as it was read.
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
	Fault        Fault // what was wrong with the share's words, 0 for nothing
}

// Fault is a set of things that no honest process writes.
type Fault uint8

// The faults.
const (
	FaultBackwards Fault = 1 << iota // an interval ends before it begins or begins before an earlier one ended
	FaultFuture                      // an interval ends, or open work began, later than now
	FaultExcess                      // more work was told than time has passed
)

// Replay finds each share's own GPU time. Its zero value is ready.
type Replay struct {
	// Slice is the time slice that runnable processes take in turn, ns; 0 stands for 1,024,000, the default of
	// NVIDIA's driver.
	Slice uint64
}

// Advance takes the processes' words as read at now, just before the first of them was read, and returns by share
// the work that can be told for certain. A share with nothing new has no entry.
func (r *Replay) Advance(now uint64, works []Work) map[string]Usage { return nil }

// Assume takes a share to have work on the GPU at every moment, whatever its processes say: for a share that uses
// more by the driver's figures than it says. Own time of others is then counted beside it.
func (r *Replay) Assume(share string, busy bool) {}

// Verdict is what Watch thinks of a share.
type Verdict int

// The verdicts, from good to bad.
const (
	Honest      Verdict = iota
	Suspect             // says too little, not long enough to act upon; Replay.Assume(share, true)
	Understates         // uses clearly more than it says since a second or longer
	Exceeds             // uses clearly more than it was granted since a second or longer
)

// Watch compares what shares say with the driver's own figures. Its zero value is ready.
type Watch struct{}

// Tell notes what a share said and was granted since the last call for it: own GPU time (Usage.Own, as it is told,
// not as corrected by Bias) and the rate in parts per million that its budget held; an unlimited share's is Whole.
// To be called in every round, with own 0 if there is none.
func (w *Watch) Tell(now uint64, share string, own uint64, rate uint32) {}

// Observe takes one sample of the driver: busy is the part 0..1 of the GPU's time that the share's processes had
// together in the sample that ended at the moment at, which may be some hundred ms past. A sample that is not later
// than the last one is ignored.
func (w *Watch) Observe(at uint64, share string, busy float64) Verdict { return Honest }

// Bias is by what factor, 0.8 to 1.25, the share's own time is to be multiplied because the driver's figures differ
// from it steadily; 1 within their noise.
func (w *Watch) Bias(share string) float64 { return 1 }

// Forget drops what is known of a share that is gone.
func (w *Watch) Forget(share string) {}
