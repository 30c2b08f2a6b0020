package control

import "time"

// Time is what is known of a share's GPU time. Totals are since the share began
// and in ns; all but Used and Percent come from the tenant's own page.
type Time struct {
	// Limited is false for a share that has the GPU to itself and may use all of
	// it: then nothing is counted, and Percent is the driver's figure.
	Limited bool `json:"limited"`
	// Percent of the GPU's time over the last second; nil where it is not known.
	Percent *float64 `json:"percent,omitempty"`
	// HeldBack is whether a launch had to wait in the last second.
	HeldBack bool   `json:"heldBack"`
	Used     uint64 `json:"usedNanoseconds"`
	Charged  uint64 `json:"chargedNanoseconds"`
	// Entitled is the GPU time that it had a right to when all others want theirs, since the agent knows it.
	Entitled uint64 `json:"entitledNanoseconds"`
	// Error is by which part of the GPU's time, 0 to 1, the use of the last second differs from what the arbiter gave;
	// nil for a share that was not held back, which used as much as it wanted.
	Error *float64 `json:"error,omitempty"`
	// Waited is of all threads together. HeldBackTotal is of real time, in which each moment
	// counts once: never more than the share's age. Yielded is the part of it in which the
	// share gave way to an online one.
	Waited        uint64 `json:"waitedNanoseconds"`
	HeldBackTotal uint64 `json:"heldBackNanoseconds"`
	Yielded       uint64 `json:"yieldedNanoseconds"`
	// HeldBackPercent is how much of the last second it was held back.
	HeldBackPercent float64 `json:"heldBackPercent"`
	Launches        uint64  `json:"launches"`
	// Overdrawn counts launches that were let go after the longest wait.
	Overdrawn uint64 `json:"overdrawn"`
	// Fault says what is wrong with how the share uses time, else empty.
	Fault string `json:"fault,omitempty"`
}

// Refusals are refused allocations of a share, since it began. All of it comes from the
// tenant's own page and is only its word.
type Refusals struct {
	// Count is how many there were, and ByGPU how many of them the driver refused although
	// they fit into the share.
	Count uint64 `json:"count"`
	ByGPU uint64 `json:"byGPU"`
	// Largest and Last are bytes that the largest and the last one could have taken; what a
	// program asked for may be a little less.
	Largest uint64 `json:"largest"`
	Last    uint64 `json:"last"`
	// At is when the last one was, no earlier than the tenant, and By who refused it.
	At time.Time `json:"at"`
	By Refuser   `json:"by"`
}

// Refuser is who refuses an allocation.
type Refuser string

// Who does.
const (
	// RefuserLimit is the share's limit.
	RefuserLimit Refuser = "limit"
	// RefuserGPU is the driver, for want of memory on the GPU.
	RefuserGPU Refuser = "gpu"
)
