package demand_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
	"github.com/divvy-gpu/divvy/internal/scheduler/ledger"
)

// ledger has a ledger follow the cluster.
func (c *cluster) ledger(t testing.TB) *ledger.Ledger {
	t.Helper()
	policy, err := alloc.PolicyNamed(alloc.DefaultPolicy)
	if err != nil {
		t.Fatal(err)
	}
	l, err := ledger.New(policy)
	if err != nil {
		t.Fatal(err)
	}
	pools := map[string][]*resourcev1.ResourceSlice{}
	for _, slice := range c.slices {
		pools[slice.Spec.Pool.Name] = append(pools[slice.Spec.Pool.Name], slice)
	}
	for name, all := range pools {
		l.SetPool(name, all)
		l.SetNode(name, &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("512Gi")}}})
	}
	classes, err := c.List()
	if err != nil {
		t.Fatal(err)
	}
	l.SetClasses(classes)
	return l
}

// By what the ledger tells, and placed in its inventory, claims get what Kubernetes would write too.
func TestByTheLedger(t *testing.T) {
	c := every(t)
	l := c.ledger(t)
	place := func(d *demand.Demand) (alloc.Assignment, bool) {
		choices, err := l.Inventory().PodChoices(d.Pod(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return choices.Next()
	}
	placed, not := 0, 0
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 11))
		spec := randomClaim(random)
		_, err := demand.Of(&corev1.Pod{}, claimsOf(spec), l)
		if err != nil {
			if !errors.Is(err, demand.ErrElsewhere) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			continue
		}
		if c.checkBy(t, l, place, &corev1.Pod{}, spec) != nil {
			placed++
		} else {
			not++
		}
		if t.Failed() {
			t.Fatalf("seed %d: %s", seed, written(spec))
		}
	}
	if placed < 10 || not < 5 {
		t.Errorf("%d were placed and %d not", placed, not)
	}
}

// The claim's configuration stands in for the class's.
func TestClaimsGoBeforeClasses(t *testing.T) {
	c := every(t)
	class := c.DeviceClass(v1alpha1.ClassShare)
	class.Spec.Config = []resourcev1.DeviceClassConfiguration{{DeviceConfiguration: opaque(v1alpha1.Driver, ours(`,"gpuModels":"H100"`))}}
	for _, test := range []struct {
		spec resourcev1.ResourceClaimSpec
		want alloc.Names
	}{{share(), "H100"}, {configured(share(), v1alpha1.Driver, ours(`,"gpuModels":"T4"`)), "T4"}} {
		d, err := demand.Of(&corev1.Pod{}, claimsOf(test.spec), c)
		if err != nil || d.Pod().Claims[0][0].Models != test.want {
			t.Errorf("models are %+v, %v", d.Pod().Claims, err)
		}
	}
}
