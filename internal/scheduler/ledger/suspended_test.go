package ledger

import (
	"errors"
	"math/rand/v2"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	dra "github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// suspendAtRandom orders a claim out of its GPUs, or has its devices answer an order, as it comes.
func suspendAtRandom(random *rand.Rand, claim *resourcev1.ResourceClaim) {
	if random.IntN(3) > 0 {
		return
	}
	order := int64(1 + random.IntN(2))
	if random.IntN(3) > 0 {
		claim.Annotations = map[string]string{v1alpha1.SuspendAnnotation: orderText(order)}
	}
	for i := range claim.Status.Allocation.Devices.Results {
		reasons := []string{v1alpha1.SuspendedReason, v1alpha1.SuspendedReason, v1alpha1.RefusedReason, v1alpha1.ResumedReason, ""}
		if reason := reasons[random.IntN(len(reasons))]; reason != "" {
			answered(claim, i, order, reason)
		}
	}
}

func orderText(order int64) string {
	text, _ := v1alpha1.Suspension{Order: order, For: "b/p"}.Text() // it can be written
	return text
}

func answered(claim *resourcev1.ResourceClaim, i int, order int64, reason string) {
	r := &claim.Status.Allocation.Devices.Results[i]
	claim.Status.Devices = append(claim.Status.Devices, resourcev1.AllocatedDeviceStatus{
		Driver: r.Driver, Pool: r.Pool, Device: r.Device, Conditions: []metav1.Condition{v1alpha1.SuspensionAnswer(order, reason, "because", metav1.Now())},
	})
}

// saidOf is where a claim counts by what it says, worked out without the ledger.
func saidOf(claim *resourcev1.ResourceClaim) (gpu, host bool) {
	read, err := v1alpha1.ParseSuspension(claim.Annotations[v1alpha1.SuspendAnnotation])
	ordered, all, some, refused := err == nil, true, false, false
	for i := range claim.Status.Allocation.Devices.Results {
		r := &claim.Status.Allocation.Devices.Results[i]
		var said *metav1.Condition
		for k := range claim.Status.Devices {
			if d := &claim.Status.Devices[k]; said == nil && d.Pool == r.Pool && d.Device == r.Device {
				said = &d.Conditions[0]
			}
		}
		out := said != nil && said.Status == metav1.ConditionTrue
		some = some || out
		all = all && out && said.ObservedGeneration == read.Order
		refused = refused || said != nil && said.Reason == v1alpha1.RefusedReason && said.ObservedGeneration == read.Order
	}
	return !ordered || !all, some || ordered && !refused
}

// A claim leaves its GPU and comes back: its memory counts in its host from when that is noted until its agent has it back, and it frees
// the GPU only while it is ordered out and its agent says that it is.
func TestSuspendedClaim(t *testing.T) {
	l := newLedger(t)
	gpus := gpusOf(0, 1)
	gpus[0].Capability, gpus[0].Suspends = "9.0", true
	dra.Divide(gpus, 50*gib, v1alpha1.Percent(50))
	l.SetPool("n0", slicesOf(t, "n0", gpus))
	l.SetNode("n0", machine("64", "512Gi"))
	counted := func(what string, granted, swapped uint64, tenants int) {
		t.Helper()
		if g := nodeNamed(t, l, "n0").GPUs[0]; g.Granted != granted*gib || g.SwapGranted != swapped*gib || g.Tenants != tenants || g.Fence != "" {
			t.Fatalf("%s: %d bytes, %d of the host, %d tenants, %q", what, g.Granted, g.SwapGranted, g.Tenants, g.Fence)
		}
		rebuilt, err := l.Rebuilt(policyOf(t))
		if err != nil {
			t.Fatal(err)
		}
		if text := l.Difference(rebuilt); text != "" {
			t.Fatalf("%s: a rebuild differs: %s", what, text)
		}
	}
	device := dra.Name(gpus[0].UUID, dra.Shared)
	claim := claimOf(result("n0", device, "30Gi", "20", "1"))
	l.SetClaim("ns/one", claim)
	if why := l.Leaves("ns/one"); why != "" {
		t.Fatalf("it cannot leave: %s", why)
	}
	counted("it runs", 30, 0, 1)
	if err := l.Suspend("ns/one", 1); err != nil {
		t.Fatal(err)
	}
	counted("noted", 30, 30, 1)
	l.SetClaim("ns/two", claimOf(result("n0", device, "5Gi", "0", "1")))
	if err := l.Suspend("ns/none", 1); !errors.Is(err, ErrTaken) {
		t.Errorf("a claim without devices is ordered out: %v", err)
	}
	l.SetClaim("ns/two", nil)
	ordered := claim.DeepCopy()
	ordered.Annotations = map[string]string{v1alpha1.SuspendAnnotation: orderText(1)}
	l.SetClaim("ns/one", ordered)
	counted("ordered", 30, 30, 1)
	if _, is := l.Turning("ns/one"); is {
		t.Error("its note outlives the order")
	}
	out := ordered.DeepCopy()
	answered(out, 0, 1, v1alpha1.SuspendedReason)
	l.SetClaim("ns/one", out)
	counted("it is out", 0, 30, 0)
	if home := l.Home("ns/one"); l.OnGPUs("ns/one") || len(home) != 1 || home[0].Shares[0].Limit != 30*gib || home[0].Shares[0].Cores != 20 || home[0].Shares[0].Away {
		t.Errorf("its GPU is %+v", home)
	}
	other := reserve(t, l, "ns/other", alloc.Request{Count: 1, Memory: v1alpha1.Bytes(38 * gib)})
	counted("another has its place", 38, 30, 1)
	if err := l.Resume("ns/one", 1); !errors.Is(err, ErrTaken) {
		t.Errorf("it comes back where there is no room: %v", err)
	}
	counted("it stays out", 38, 30, 1)
	l.Unreserve("ns/other")
	_ = other
	l.Fence("n0", gpus[0].UUID, "somebody looks at it")
	if err := l.Resume("ns/one", 1); !errors.Is(err, ErrTaken) {
		t.Errorf("it comes back to a GPU that is fenced: %v", err)
	}
	l.Fence("n0", gpus[0].UUID, "")
	if err := l.Resume("ns/one", 1); err != nil {
		t.Fatal(err)
	}
	counted("it is let back", 30, 30, 1)
	l.SetClaim("ns/one", out.DeepCopy()) // an older event
	counted("an older event came", 30, 30, 1)
	l.Forget("ns/one", out)
	counted("it was not written", 0, 30, 0)
	if err := l.Resume("ns/one", 1); err != nil {
		t.Fatal(err)
	}
	back := out.DeepCopy()
	back.Annotations = nil
	l.SetClaim("ns/one", back)
	counted("it comes back", 30, 30, 1)
	back = back.DeepCopy()
	back.Status.Devices = nil
	answered(back, 0, 1, v1alpha1.ResumedReason)
	l.SetClaim("ns/one", back)
	counted("it is back", 30, 0, 1)
	if s := StandingOf(back); s.Last != 1 || s.BackAt.IsZero() || s.Out {
		t.Errorf("it stands at %+v", s)
	}
	if err := l.Suspend("ns/one", 2); err != nil {
		t.Fatal(err)
	}
	refused := back.DeepCopy()
	refused.Annotations = map[string]string{v1alpha1.SuspendAnnotation: orderText(2)}
	l.SetClaim("ns/one", refused)
	counted("an answer to an earlier order is none", 30, 30, 1)
	refused = refused.DeepCopy()
	refused.Status.Devices = nil
	answered(refused, 0, 2, v1alpha1.RefusedReason)
	l.SetClaim("ns/one", refused)
	if s := StandingOf(refused); !s.Refused || s.Why != "because" {
		t.Errorf("it stands at %+v", s)
	}
	counted("refused", 30, 0, 1)
	l.SetClaim("ns/one", nil)
	counted("ended", 0, 0, 0)
}

// Nobody is ordered out into more than the host has.
func TestSuspendedIntoAFullHost(t *testing.T) {
	l := newLedger(t)
	gpus := gpusOf(0, 1)
	gpus[0].Capability, gpus[0].Suspends = "9.0", true
	dra.Divide(gpus, 20*gib, v1alpha1.Percent(20))
	l.SetPool("n0", slicesOf(t, "n0", gpus))
	l.SetNode("n0", machine("64", "512Gi"))
	device := dra.Name(gpus[0].UUID, dra.Shared)
	l.SetClaim("ns/one", claimOf(result("n0", device, "12Gi", "20", "1")))
	l.SetClaim("ns/two", claimOf(result("n0", device, "9Gi", "20", "1")))
	if err := l.Suspend("ns/one", 1); err != nil {
		t.Fatal(err)
	}
	if err := l.Suspend("ns/two", 1); !errors.Is(err, ErrTaken) {
		t.Errorf("beside 12 GiB of 20, 9 are ordered out: %v", err)
	}
	if g := nodeNamed(t, l, "n0").GPUs[0]; g.SwapGranted != 12*gib || g.Granted != 21*gib || g.Tenants != 2 || g.Fence != "" {
		t.Errorf("the GPU has %+v", g)
	}
}

// Only plain shares of GPUs that suspend leave them.
func TestLeaves(t *testing.T) {
	l := newLedger(t)
	gpus := gpusOf(0, 2)
	gpus[0].Capability, gpus[0].Suspends = "9.0", true
	gpus[1].Capability = "9.0"
	dra.Divide(gpus, 100*gib, v1alpha1.Percent(20))
	l.SetPool("n0", slicesOf(t, "n0", gpus))
	l.SetNode("n0", machine("64", "512Gi"))
	suspends, other := dra.Name(gpus[0].UUID, dra.Shared), dra.Name(gpus[1].UUID, dra.Shared)
	swap := result("n0", suspends, "2Gi", "0", "1")
	swap.ConsumedCapacity[v1alpha1.CapacitySwapMemory] = swap.ConsumedCapacity[v1alpha1.CapacityMemory]
	for want, claim := range map[string]*resourcev1.ResourceClaim{
		"":                                claimOf(result("n0", suspends, "2Gi", "0", "1")),
		"its GPU does not suspend shares": claimOf(result("n0", suspends, "2Gi", "0", "1"), result("n0", other, "2Gi", "0", "1")),
		"it is a swap share":              claimOf(swap),
		"it has no memory of its own, or several slots": claimOf(result("n0", suspends, "2Gi", "0", "2")),
		"it has no plain share of a GPU":                claimOf(result("n0", "gpu-gone", "2Gi", "0", "1")),
		"it has nothing":                                nil,
	} {
		l.SetClaim("ns/one", nil)
		l.SetClaim("ns/one", claim)
		if got := l.Leaves("ns/one"); got != want {
			t.Errorf("it cannot leave because %q, not because %q", got, want)
		}
	}
}
