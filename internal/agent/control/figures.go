package control

import "time"

// Time is what is known of a share's GPU time. Totals are since the share began
// and in ns; all but Used and Percent come from the tenant's own page.
type Time struct {
	// Limited is false for a share that has the GPU to itself and may use all of
	// it: then the library counts nothing, and Used and Percent are the driver's figures.
	Limited bool `json:"limited"`
	// Percent of the GPU's time over the last second; nil where it is not known.
	Percent *float64 `json:"percent,omitempty"`
	// HeldBack is whether a launch had to wait in the last second.
	HeldBack bool   `json:"heldBack"`
	Used     uint64 `json:"usedNanoseconds"`
	// UsedUntil is the moment up to which Used is known; zero where that is not known.
	UsedUntil time.Time `json:"usedUntil,omitzero"`
	Charged   uint64    `json:"chargedNanoseconds"`
	// Entitled is the GPU time that it had a right to when all others want theirs. Time without an agent counts only as far
	// as it is known what the share did then.
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
	// Copied and Awaited are real time in which its programs were in copies between host and GPU for which they wait, and in
	// other calls that wait for the GPU, which may have worked meanwhile. They are counted while the GPU's time is divided.
	Copied  uint64 `json:"copiedNanoseconds"`
	Awaited uint64 `json:"awaitedNanoseconds"`
	// Lately is the same of the last ten minutes, or since it began if that is later; nil for a share that an earlier agent
	// knew, until a minute has passed.
	Lately *Lately `json:"lately,omitempty"`
	// HeldBackPercent is how much of the last second it was held back.
	HeldBackPercent float64 `json:"heldBackPercent"`
	Launches        uint64  `json:"launches"`
	// Overdrawn counts launches that were let go after the longest wait.
	Overdrawn uint64 `json:"overdrawn"`
	// Inherited is what it still owes for earlier shares of its user, and pays before it may launch; 0 once that is paid.
	Inherited uint64 `json:"inheritedDebtNanoseconds,omitempty"`
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

// Lately is what a share did in a time just passed, all in ns.
type Lately struct {
	Span     time.Duration `json:"spanNanoseconds"`
	Used     uint64        `json:"usedNanoseconds"`
	HeldBack uint64        `json:"heldBackNanoseconds"`
	Copied   uint64        `json:"copiedNanoseconds"`
	Awaited  uint64        `json:"awaitedNanoseconds"`
}
