package scheduler

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// A comparison is made at once, then once a minute, and less often where it takes long. It runs beside the cycle.
func TestCompare(t *testing.T) {
	e := engineOf(t, 2, claimsByName{})
	now := time.Now()
	took := 5 * time.Second
	clock := func() time.Time { now = now.Add(took / 2); return now }
	told := make(chan Comparison, 1)
	compare := func() (Comparison, bool) {
		if !e.Compare(clock, func(c Comparison, err error) {
			if err != nil {
				t.Error(err)
			}
			told <- c
		}) {
			return Comparison{}, false
		}
		return <-told, true
	}
	if c, ok := compare(); !ok || c.Differences != 0 || c.First != "" || c.Took != took/2 {
		t.Fatalf("%+v, %v", c, ok)
	}
	now = now.Add(compareEvery)
	if _, ok := compare(); ok {
		t.Errorf("a comparison that takes %v is made again after %v", took/2, compareEvery)
	}
	now = now.Add(comparePart*took/2 - compareEvery)
	took = 0
	node := e.ledger.Inventory().Node(0)
	e.ledger.Inventory().Adopt(alloc.Assignment{Node: -1, Name: node.Name, Shares: []alloc.Share{{UUID: node.GPUs[0].UUID, Limit: 1 << 30}}})
	if c, ok := compare(); !ok || c.Differences != 1 || !strings.Contains(c.First, node.GPUs[0].UUID) {
		t.Errorf("%+v, %v, and a GPU has what nobody has", c, ok)
	}
	now = now.Add(compareEvery - time.Second)
	if _, ok := compare(); ok {
		t.Error("compared twice within a minute")
	}
	now = now.Add(time.Second)
	if _, ok := compare(); !ok {
		t.Error("not compared after a minute")
	}
}

// A place that was noted is one until its claim comes with the allocation, or the place is taken back. Nobody has to look for
// events for that.
func TestUnwritten(t *testing.T) {
	claims := claimsByName{}
	e := engineOf(t, 2, claims)
	var units []*Unit
	for _, pod := range gangOf(e, claims, 2, nil) {
		u, err := e.Read(pod)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Choose(u, nil, func(string) bool { return true }); err != nil {
			t.Fatal(err)
		}
		if err := e.Reserve(u); err != nil {
			t.Fatal(err)
		}
		units = append(units, u)
	}
	if n := e.Unwritten(); n != 2 {
		t.Errorf("2 places are noted, and %d are told", n)
	}
	before := claims[units[0].Allocations[0].Claim.Key()]
	after := before.DeepCopy()
	after.Status.Allocation = units[0].Allocations[0].Result
	e.onClaim(before, after, func() { t.Error("a claim that got devices made room") })
	if n := e.Unwritten(); n != 1 {
		t.Errorf("one of 2 claims has come, and %d are told", n)
	}
	e.Unreserve(units[1])
	e.Drain()
	if n := e.Unwritten(); n != 0 {
		t.Errorf("the other was taken back, and %d are told", n)
	}
}

// What Kubernetes' own plugin found for a pod's extended resources is noted until the claim of the pod comes, by whatever name:
// then the claim has it, and the GPU was given once all the time.
func TestReserveFoundForExtendedResources(t *testing.T) {
	claims := claimsByName{}
	e := engineOf(t, 1, claims)
	pod := gangOf(e, claims, 1, nil)[0]
	u, err := e.Read(pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Choose(u, nil, func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	claim := claims["team/p0"].DeepCopy()
	claim.Name, claim.Annotations = "<extended-resources>", map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
	claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))}
	claim.Status.Allocation = u.Allocations[0].Result
	tenants := func() (n int) {
		for _, g := range e.ledger.Inventory().Node(0).GPUs {
			n += g.Tenants
		}
		return n
	}
	if err := e.ReserveFound(&Unit{Pod: pod}, []*resourcev1.ResourceClaim{claim}); err != nil || tenants() != 1 || e.Unwritten() != 1 {
		t.Fatalf("%d shares are counted, %d of them unwritten: %v", tenants(), e.Unwritten(), err)
	}
	claim.Name = "p0-extended-resources-x7k2p"
	e.setClaim(nil, claim)
	if tenants() != 1 || e.Unwritten() != 0 || len(e.Fences()) > 0 {
		t.Errorf("%d shares are counted, %d of them unwritten, fenced is %v", tenants(), e.Unwritten(), e.Fences())
	}
}
