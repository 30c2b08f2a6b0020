package ledger

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	dra "github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// What swap shares have of the host is counted from the reservation to the end of the claim, and what they keep of the GPU.
func TestSwapMemoryFromReservationToRelease(t *testing.T) {
	l := newLedger(t)
	gpus := gpusOf(0, 1)
	gpus[0].Capability = "9.0"
	dra.Divide(gpus, 96*gib, v1alpha1.Percent(50))
	l.SetPool("n0", slicesOf(t, "n0", gpus))
	l.SetNode("n0", machine("64", "512Gi"))
	counted := func(what string, granted, swapped uint64) {
		t.Helper()
		if g := nodeNamed(t, l, "n0").GPUs[0]; g.Capacity != 40*gib || g.SwapMemory != 96*gib || g.MostSwapMemory != 40*gib || g.Granted != granted*gib || g.SwapGranted != swapped*gib {
			t.Errorf("%s: %d of %d bytes are granted, and %d of %d of the host, %d for one", what, g.Granted, g.Capacity, g.SwapGranted, g.SwapMemory, g.MostSwapMemory)
		}
	}
	one := reserve(t, l, "ns/one", alloc.Request{Count: 1, Memory: v1alpha1.Bytes(4 * gib), SwapMemory: 40 * gib})
	counted("reserved", 4, 40)
	taken := result("n0", dra.Name(gpus[0].UUID, dra.Shared), "2Gi", "0", "1")
	taken.ConsumedCapacity[v1alpha1.CapacitySwapMemory] = resource.MustParse("40Gi")
	l.SetClaim("ns/two", claimOf(taken))
	counted("beside a claim", 6, 80)
	given := reserve(t, l, "ns/three", alloc.Request{Count: 1, Memory: v1alpha1.Bytes(gib), SwapMemory: 16 * gib})
	if given.Shares[0].SwapMemory != 16*gib {
		t.Errorf("it is given %+v", given)
	}
	counted("full", 7, 96)
	more := one
	more.Shares = append([]alloc.Share(nil), one.Shares...)
	more.Shares[0].SwapMemory = gib
	if err := l.Reserve("ns/four", more); !errors.Is(err, ErrTaken) {
		t.Errorf("more than the host has: %v", err)
	}
	l.Unreserve("ns/one")
	counted("one is taken back", 3, 56)
	l.SetClaim("ns/two", nil)
	counted("two has ended", 1, 16)
}
