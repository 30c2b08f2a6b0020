package ledger

import (
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	dra "github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// A host that has less than is suspended into it, because its agent was given less, keeps nobody from the GPU: those that are suspended come
// back, which is what gives the host memory back, and others get what is free.
func TestSuspendedIntoLessThanThereWas(t *testing.T) {
	l := newLedger(t)
	gpus := gpusOf(0, 1)
	gpus[0].Capability, gpus[0].Suspends = "9.0", true
	dra.Divide(gpus, 40*gib, v1alpha1.Percent(20))
	l.SetPool("n0", slicesOf(t, "n0", gpus))
	l.SetNode("n0", machine("64", "512Gi"))
	device := dra.Name(gpus[0].UUID, dra.Shared)
	for _, key := range []string{"ns/one", "ns/two"} {
		claim := claimOf(result("n0", device, "12Gi", "20", "1"))
		claim.Annotations = map[string]string{v1alpha1.SuspendAnnotation: orderText(1)}
		answered(claim, 0, 1, v1alpha1.SuspendedReason)
		l.SetClaim(key, claim)
	}
	less := gpusOf(0, 1)
	less[0].Capability, less[0].Suspends = "9.0", true
	dra.Divide(less, 10*gib, v1alpha1.Percent(20))
	l.SetPool("n0", slicesOf(t, "n0", less))
	if g := nodeNamed(t, l, "n0").GPUs[0]; g.SwapMemory != 10*gib || g.SwapGranted != 24*gib || g.Fence != "" {
		t.Errorf("the GPU has %+v", g)
	}
	reserve(t, l, "ns/new", alloc.Request{Count: 1, Memory: v1alpha1.Bytes(gib)})
	for _, key := range []string{"ns/one", "ns/two"} {
		if err := l.Resume(key, 1); err != nil {
			t.Errorf("%s stays out: %v", key, err)
		}
	}
}
