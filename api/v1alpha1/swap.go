package v1alpha1

import "time"

// Bounds of a share's swapping and suspension.
const (
	// MaxSwapGPUs bounds the GPUs of a swap share, which has two ledgers for each.
	MaxSwapGPUs = 8
	// MinSuspendAfter and MaxSuspendAfter bound how long a share is idle before it is suspended.
	MinSuspendAfter = Duration(time.Second)
	MaxSuspendAfter = Duration(30 * 24 * time.Hour)
	// leastKept is what a swap share keeps on the GPU unless it says otherwise and has twice as much: a context takes
	// some hundred MiB, and code, pools and graphs come on top.
	leastKept = 1 << 30
)

// KeptOf is how many bytes of a swap share's memory never leave the GPU: what Kept says, of a tenth at least a GiB, but
// not more than half of the memory. Kept may exceed the memory if it says so.
func (c *ShareConfig) KeptOf(memory uint64) uint64 {
	switch {
	case !c.Swap:
		return 0
	case !c.Kept.IsZero():
		return c.Kept.Of(memory)
	}
	const tenth = 10
	return min(max(memory/tenth, leastKept), memory/2) / BlockBytes * BlockBytes
}

// validateSwap tells of faults in how a share's memory may leave the GPU.
func (c *ShareConfig) validateSwap(fault func(format string, args ...any)) {
	if !c.Swap && !c.Kept.IsZero() {
		fault("kept %s is a part of a swap share: add swap, or leave out kept", c.Kept)
	}
	if c.Swap && c.SuspendAfter != 0 {
		fault("the driver cannot suspend a process with managed memory, which a swap share has: leave out swap or suspendAfter")
	}
	if c.SuspendAfter != 0 && (c.SuspendAfter < MinSuspendAfter || c.SuspendAfter > MaxSuspendAfter) {
		fault("suspendAfter %s: give %s to %s", time.Duration(c.SuspendAfter), time.Duration(MinSuspendAfter), time.Duration(MaxSuspendAfter))
	}
	if (c.Swap || c.SuspendAfter != 0) && c.Backend != BackendSlice {
		fault("swap and suspendAfter need backend slice, not %s: leave out the backend", c.Backend)
	}
}

// away says what of a share may leave the GPU, "" for nothing.
func (c *ShareConfig) away() string {
	switch {
	case c.Swap:
		return "swap"
	case c.SuspendAfter != 0:
		return "suspendAfter"
	}
	return ""
}
