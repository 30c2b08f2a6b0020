package arbiter

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
