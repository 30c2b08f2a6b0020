package pool

import (
	"fmt"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// leastCompute is the compute capability from which on GPUs fault for pages of managed memory: Pascal.
const leastCompute = 6

// swaps reports whether swap shares of the GPU can be.
func (g *GPU) swaps() bool {
	if g.Unswappable {
		return false
	}
	major, err := strconv.Atoi(strings.SplitN(g.Capability, ".", 2)[0])
	return err == nil && major >= leastCompute
}

// Divide gives each GPU that swaps and has more memory than a turn, or whose shares can be suspended, in whatever form it is now, an
// equal part of the budget that the node has for memory that is off a GPU, and to the former the turn that the node's configuration says. A
// claim is counted on a device, so a budget of the node can be promised only in parts; equal ones stay what they are while GPUs change
// their form or are lost. Without a budget no share is suspended either, and without a turn none swaps.
func Divide(gpus []GPU, budget uint64, turn v1alpha1.Memory) {
	var among []*GPU
	for i := range gpus {
		g := &gpus[i]
		g.Suspends = g.Suspends && budget > 0
		if size := turn.Of(g.Memory); !turn.IsZero() && g.swaps() && size >= LeastMemory && size+LeastMemory <= g.Memory {
			g.Turn = size
		}
		if g.Turn > 0 || g.Suspends {
			among = append(among, g)
		}
	}
	for _, g := range among {
		if g.SwapMemory = budget / uint64(len(among)); g.SwapMemory < LeastMemory {
			g.SwapMemory, g.Turn = 0, 0
		}
	}
}

// turn is how much of the GPU's memory is for turns: none in a form whose shares do not swap.
func (g *GPU) turn() uint64 {
	if g.form() != Shared || g.SwapMemory == 0 {
		return 0
	}
	return g.Turn / mebibyte * mebibyte
}

// leaves reports whether memory of the GPU can be off it.
func (g *GPU) leaves() bool {
	return g.form() == Shared && g.SwapMemory > 0 && (g.turn() > 0 || g.Suspends)
}

// swap is the capacity of which swap shares take their limits, and suspended ones theirs. No claim can have more than a turn holds; one
// that asks for nothing of it does not swap.
func (g *GPU) swap() resourcev1.DeviceCapacity {
	all := capacity(inBlocks(g.SwapMemory), *resource.NewQuantity(0, resource.BinarySI), *resource.NewQuantity(mebibyte, resource.BinarySI))
	most := inBlocks(min(g.turn(), g.SwapMemory))
	all.RequestPolicy.ValidRange.Max = &most
	return all
}

func (g *GPU) validateSwap() error {
	switch turn := g.turn(); {
	case g.SwapMemory == 0 && g.Turn == 0:
	case g.SwapMemory < LeastMemory, g.Turn < LeastMemory && (g.Turn > 0 || !g.Suspends):
		return fmt.Errorf("%w: %s: swap shares with %d bytes in turns of %d", ErrGPU, g.UUID, g.SwapMemory, g.Turn)
	case turn > 0 && g.Memory < turn+LeastMemory:
		return fmt.Errorf("%w: %s has %d bytes for tenants, and turns of %d leave nothing for what swap shares keep there", ErrGPU, g.UUID, g.Memory, turn)
	}
	return nil
}
