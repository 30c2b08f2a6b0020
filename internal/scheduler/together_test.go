package scheduler

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

const gib = 1 << 30

// claimsByName are the claims of a test.
type claimsByName map[string]*resourcev1.ResourceClaim

func (c claimsByName) Get(namespace, name string) (*resourcev1.ResourceClaim, error) {
	if claim := c[namespace+"/"+name]; claim != nil {
		return claim, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "resourceclaims"}, name)
}

// racked has two nodes in each rack, and lets pods everywhere but on one node.
type racked struct{ closed string }

func (racked) Among(*corev1.Pod) []string             { return nil }
func (r racked) Lets(_ *corev1.Pod, node string) bool { return node != r.closed }
func (racked) Label(node, label string) (string, bool) {
	var i int
	_, err := fmt.Sscanf(node, "n%d", &i)
	return fmt.Sprint("r", i/2), err == nil && label == "rack"
}

// engineOf makes an engine that knows nodes of two GPUs.
func engineOf(t *testing.T, nodes int, claims Claims) *Engine {
	t.Helper()
	policy, err := alloc.PolicyNamed(alloc.DefaultPolicy)
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(policy, claims)
	if err != nil {
		t.Fatal(err)
	}
	class := &resourcev1.DeviceClass{}
	class.Name = "shares"
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
		Expression: `device.driver == "divvy.dev" && device.attributes["divvy.dev"].form == "shared"`,
	}}}
	e.setClasses([]any{class})
	for i := range nodes {
		node := &corev1.Node{}
		node.Name = fmt.Sprint("n", i)
		node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("512Gi")}
		e.setNode(nil, node)
		resources, err := pool.Resources(node.Name, []pool.GPU{
			{UUID: fmt.Sprintf("GPU-%08x-0000-0000-0000-000000000000", i), Index: 0, Model: "H100", Memory: 80 * gib},
			{UUID: fmt.Sprintf("GPU-%08x-0000-0000-0000-000000000001", i), Index: 1, Model: "H100", Memory: 80 * gib},
		})
		if err != nil {
			t.Fatal(err)
		}
		for j, s := range resources.Pools[node.Name].Slices {
			slice := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
				Driver: v1alpha1.Driver, NodeName: &node.Name, Devices: s.Devices, SharedCounters: s.SharedCounters,
				Pool: resourcev1.ResourcePool{Name: node.Name, Generation: 1, ResourceSliceCount: int64(len(resources.Pools[node.Name].Slices))},
			}}
			slice.Name = fmt.Sprint(node.Name, "-", j)
			e.setSlice(nil, slice)
		}
	}
	return e
}

// asking makes pods that ask for a share of 10 GiB each, with their claims.
func asking(t *testing.T, e *Engine, claims claimsByName, count int) (units []*Unit) {
	t.Helper()
	for i := range count {
		name := fmt.Sprint("p", i)
		claim := &resourcev1.ResourceClaim{}
		claim.Namespace, claim.Name, claim.UID = "team", name, types.UID(name)
		claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "shares", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
			Capacity: &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{v1alpha1.CapacityMemory: resource.MustParse("10Gi")}},
		}}}
		claims["team/"+name] = claim
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name, pod.UID = "team", name, types.UID("pod-"+name)
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To(name)}}
		u, err := e.Read(pod)
		if err != nil {
			t.Fatal(err)
		}
		units = append(units, u)
	}
	return units
}

func gangOf(size int, levels ...gang.Level) gang.Gang {
	return gang.Gang{Namespace: "team", Name: "train", Size: size, Minimum: size, Topology: levels}
}

// Members of a gang get GPUs of their own in one rack, all of them are reserved or none, and one that stands in for a lost
// one goes to the others.
func TestTogether(t *testing.T) {
	claims := claimsByName{}
	e := engineOf(t, 6, claims)
	units := asking(t, e, claims, 4)
	rack := gang.Level{Label: "rack", Required: true}
	left, err := e.Together(gangOf(4, rack), units, racked{})
	if err != nil || len(left) > 0 {
		t.Fatal(left, err)
	}
	gpus, racks := map[string]bool{}, map[string]bool{}
	for _, u := range units {
		value, _ := racked{}.Label(u.Place.Name, "rack")
		gpus[u.Place.Shares[0].UUID], racks[value] = true, true
		if len(u.Allocations) != 1 || u.Allocations[0].Result == nil {
			t.Fatalf("%s has no allocation", u.Pod.Name)
		}
	}
	if len(gpus) != 4 || len(racks) != 1 {
		t.Fatal(gpus, racks)
	}
	if err := e.ReserveAll(units); err != nil {
		t.Fatal(err)
	}

	// All but the last are bound; its stand-in gets the GPU that is left there.
	for _, u := range units[:3] {
		claim := claims["team/"+u.Pod.Name]
		claim.Status.Allocation = u.Allocations[0].Result
		e.setClaim(nil, claim)
		u.Pod.Spec.NodeName = u.Place.Name
		again, err := e.Read(u.Pod)
		if err != nil {
			t.Fatal(err)
		}
		*u = *again
	}
	lost := units[3].Place
	e.unreserve(units[3])
	units[3].clear()
	if _, err := e.Together(gangOf(4, rack), units, racked{}); err != nil || units[3].Place.Shares[0].UUID != lost.Shares[0].UUID {
		t.Fatalf("%v: %+v, want %+v", err, units[3].Place, lost)
	}
}

func TestTogetherRefuses(t *testing.T) {
	claims := claimsByName{}
	e := engineOf(t, 4, claims)
	units := asking(t, e, claims, 7)
	if left, err := e.Together(gangOf(7), units, racked{}); err != nil || len(left) > 0 {
		t.Fatal(left, err)
	}
	for _, u := range units {
		u.clear()
	}
	_, err := e.Together(gangOf(7), units, racked{closed: "n1"})
	if !errors.Is(err, ErrRoom) || !strings.Contains(err.Error(), "gang team/train: only 6 of 7 members fit together") {
		t.Fatal(err)
	}
	for _, u := range units {
		if u.Place.Name != "" || u.Allocations != nil {
			t.Fatalf("%s has a place", u.Pod.Name)
		}
	}
	g := gangOf(7)
	g.Minimum = 5
	left, err := e.Together(g, units, racked{closed: "n1"})
	if err != nil || len(left) != 1 {
		t.Fatal(left, err)
	}
}

// A reservation that fails takes back those before it.
func TestReserveAllOrNone(t *testing.T) {
	claims := claimsByName{}
	e := engineOf(t, 2, claims)
	units := asking(t, e, claims, 3)
	if _, err := e.Together(gangOf(3), units, racked{}); err != nil {
		t.Fatal(err)
	}
	inv := e.ledger.Inventory()
	before := fmt.Sprint(inv.Node(0).GPUs, inv.Node(1).GPUs)
	other := units[2].Place.Shares[0]
	other.Whole, other.Limit, other.Cores = true, 80*gib, 100
	stolen := alloc.Assignment{Name: units[2].Place.Name, Node: -1, Shares: []alloc.Share{other}}
	if err := inv.Reserve(stolen); err != nil {
		t.Fatal(err)
	}
	if err := e.ReserveAll(units); !Taken(err) {
		t.Fatalf("got %v", err)
	}
	inv.Unreserve(stolen)
	if after := fmt.Sprint(inv.Node(0).GPUs, inv.Node(1).GPUs); after != before {
		t.Errorf("reserved is %s, want %s", after, before)
	}
}
