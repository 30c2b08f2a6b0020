package alloc

import (
	"fmt"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// FreeSwapMemory is how much memory of the host swap shares of the GPU can still have.
func (g *GPU) FreeSwapMemory() uint64 { return g.SwapMemory - min(g.SwapGranted, g.SwapMemory) }

// misdividesSwap reports whether a request for swap shares does not say what they keep of their limit, or asks for more than shares.
func (r *Request) misdividesSwap() bool {
	return r.SwapMemory > 0 && (r.Whole || r.Profile != "" || r.Memory.InBytes() == 0 || r.Memory.InBytes() >= r.SwapMemory)
}

// swapMemory is what a miss says of the host's memory: what the share needs of it, what there is for it, and all of it.
func (r *Request) swapMemory(g *GPU, cause Cause) (need, free, all uint64) {
	if cause == CauseNoSwap {
		return r.SwapMemory, min(g.SwapMemory, g.MostSwapMemory), g.SwapMemory
	}
	return r.SwapMemory, g.FreeSwapMemory(), g.SwapMemory
}

// ofSwapMemory is the sentence about GPUs whose host has too little memory for a swap share; this miss is the one with most.
func (m *Miss) ofSwapMemory(group []Miss, gpus, has, at string) string {
	switch {
	case m.Cause == CauseSwapFull:
		left, need := distinct(m.Free, m.Need)
		return fmt.Sprintf("%s %s %s of the host's %s for swap shares not granted%s and the share needs %s", gpus, has, left, v1alpha1.RoundBytes(m.All), at, need)
	case m.Free == 0:
		return fmt.Sprintf("%s %s no memory of the host for swap shares", describeGPUs(group), plural(len(group), "has", "have"))
	}
	return fmt.Sprintf("a swap share of %s is more than one of %s can have: ask for at most %s", amount(m.Need), m.called(), amount(m.Free))
}
