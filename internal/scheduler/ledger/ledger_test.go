package ledger

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	dra "github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
)

var _ demand.Published = (*Ledger)(nil)

const gib = 1 << 30

// Expressions of the chart's device classes.
const (
	sharedForm = `device.driver == "divvy.dev" && device.attributes["divvy.dev"].form == "shared" && device.allowMultipleAllocations`
	wholeForm  = `device.driver == "divvy.dev" && (device.attributes["divvy.dev"].form == "whole" || has(device.attributes["divvy.dev"].whole))`
)

func policyOf(t testing.TB) alloc.Policy {
	t.Helper()
	policy, err := alloc.PolicyNamed(alloc.DefaultPolicy)
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

func newLedger(t testing.TB) *Ledger {
	t.Helper()
	l, err := New(policyOf(t))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// uuidOf is that of a GPU of a node.
func uuidOf(node, index int) string {
	return fmt.Sprintf("GPU-%08x-0000-0000-0000-%012x", node, index)
}

func gpusOf(node, count int) (gpus []dra.GPU) {
	for i := range count {
		gpus = append(gpus, dra.GPU{
			UUID: uuidOf(node, i), Index: i, Model: "NVIDIA H100 80GB HBM3", Architecture: "hopper", Memory: 80 * gib,
			Location: &dra.Location{Root: fmt.Sprintf("pci0000:%02x", i/2), NUMANode: i / 4, PCI: fmt.Sprintf("0000:%02x:00.0", i)},
		})
	}
	return gpus
}

// slicesOf is a node's pool.
func slicesOf(t testing.TB, node string, gpus []dra.GPU) (all []*resourcev1.ResourceSlice) {
	t.Helper()
	resources, err := dra.Resources(node, gpus)
	if err != nil {
		t.Fatal(err)
	}
	pool := resources.Pools[node]
	for i, s := range pool.Slices {
		all = append(all, &resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", node, i)},
			Spec: resourcev1.ResourceSliceSpec{
				Driver: v1alpha1.Driver, NodeName: &node, Devices: s.Devices, SharedCounters: s.SharedCounters,
				Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
			},
		})
	}
	return all
}

func machine(cpu, memory string) *corev1.Node {
	return &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
	}}}
}

// claimOf is a claim with these devices.
func claimOf(results ...resourcev1.DeviceRequestAllocationResult) *resourcev1.ResourceClaim {
	claim := &resourcev1.ResourceClaim{}
	if len(results) > 0 {
		claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: results}}
	}
	return claim
}

func result(pool, device string, consumed ...string) resourcev1.DeviceRequestAllocationResult {
	r := resourcev1.DeviceRequestAllocationResult{Driver: v1alpha1.Driver, Pool: pool, Device: device}
	for i, name := range []resourcev1.QualifiedName{v1alpha1.CapacityMemory, v1alpha1.CapacityCores, v1alpha1.CapacitySlots} {
		if i < len(consumed) {
			if r.ConsumedCapacity == nil {
				r.ConsumedCapacity = map[resourcev1.QualifiedName]resource.Quantity{}
			}
			r.ConsumedCapacity[name] = resource.MustParse(consumed[i])
		}
	}
	return r
}

// nodeNamed is a node of the inventory.
func nodeNamed(t testing.TB, l *Ledger, name string) alloc.Node {
	t.Helper()
	inv := l.Inventory()
	at, ok := inv.Position(name)
	if !ok {
		t.Fatalf("there is no node %s", name)
	}
	n := inv.Node(at)
	n.GPUs = slices.Clone(n.GPUs)
	return n
}

// reserve takes a place for a request as a claim.
func reserve(t testing.TB, l *Ledger, key string, r alloc.Request) alloc.Assignment {
	t.Helper()
	a, err := alloc.Search(l.Inventory(), r)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Reserve(key, a); err != nil {
		t.Fatal(err)
	}
	return a
}

// allocated is the claim that an assignment becomes.
func allocated(t testing.TB, l *Ledger, a alloc.Assignment) *resourcev1.ResourceClaim {
	t.Helper()
	var results []resourcev1.DeviceRequestAllocationResult
	for i := range a.Shares {
		s := &a.Shares[i]
		pool, device, ok := l.Device(a.Name, s)
		if !ok {
			t.Fatalf("no device for %+v", s)
		}
		if device.AllowMultipleAllocations == nil {
			results = append(results, result(pool, device.Name))
			continue
		}
		cores := int64(s.Cores)
		if s.Whole {
			cores = device.Capacity[v1alpha1.CapacityCores].RequestPolicy.Default.Value()
		}
		r := result(pool, device.Name, "0", "0", "1")
		r.ConsumedCapacity[v1alpha1.CapacityMemory] = *resource.NewQuantity(int64(s.Limit), resource.BinarySI)
		r.ConsumedCapacity[v1alpha1.CapacityCores] = *resource.NewQuantity(cores, resource.DecimalSI)
		results = append(results, r)
	}
	return claimOf(results...)
}

func TestSharesFromReservationToRelease(t *testing.T) {
	for name, r := range map[string]alloc.Request{
		"share":           {Count: 1, Memory: v1alpha1.Bytes(10 * gib), Cores: 30},
		"default cores":   {Count: 1, Memory: v1alpha1.Bytes(10 * gib)},
		"whole GPU":       {Count: 1, Whole: true},
		"two whole GPUs":  {Count: 2, Whole: true},
		"three shares":    {Count: 3, Memory: v1alpha1.Bytes(gib), CPU: 4000, HostMemory: gib},
		"all of a memory": {Count: 1, Memory: v1alpha1.Bytes(80 * gib)},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t)
			gpus := gpusOf(0, 4)
			for i := range gpus {
				gpus[i].DefaultCores = 20
			}
			l.SetNode("a", machine("64", "256Gi"))
			l.SetPool("a", slicesOf(t, "a", gpus))
			idle := nodeNamed(t, l, "a")
			a := reserve(t, l, "ns/claim", r)
			reserved := nodeNamed(t, l, "a")
			if reserved.CPUUsed != 0 || reserved.MemoryUsed != 0 {
				t.Errorf("the host is held: %+v", reserved)
			}
			if reflect.DeepEqual(idle, reserved) {
				t.Error("nothing is reserved")
			}
			l.SetClaim("ns/claim", claimOf())
			l.SetClaim("ns/claim", allocated(t, l, a))
			if got := nodeNamed(t, l, "a"); !reflect.DeepEqual(reserved, got) {
				t.Errorf("reserved was\n%+v\nand the claim has\n%+v", reserved, got)
			}
			if l.Unreserve("ns/claim") {
				t.Error("the note outlived the claim's allocation")
			}
			if err := l.Reserve("ns/claim", a); err == nil {
				t.Error("an allocated claim was given another place")
			}
			l.SetClaim("ns/claim", claimOf())
			if got := nodeNamed(t, l, "a"); !reflect.DeepEqual(idle, got) {
				t.Errorf("idle was\n%+v\nand after the end there is\n%+v", idle, got)
			}
			if err := l.Reserve("ns/claim", a); err != nil {
				t.Fatal(err)
			}
			l.Unreserve("ns/claim")
			if got := nodeNamed(t, l, "a"); !reflect.DeepEqual(idle, got) {
				t.Errorf("idle was\n%+v\nand after Unreserve there is\n%+v", idle, got)
			}
		})
	}
}

// Pools that are not there in full are not used, and neither are those of earlier generations.
func TestIncompletePools(t *testing.T) {
	l := newLedger(t)
	l.SetNode("a", machine("64", "256Gi"))
	all := slicesOf(t, "a", gpusOf(0, 2))
	all[0].Spec.Pool.ResourceSliceCount = 2
	l.SetPool("a", all)
	if n := nodeNamed(t, l, "a"); len(n.GPUs) != 0 {
		t.Errorf("half a pool gives %+v", n.GPUs)
	}
	other := slicesOf(t, "a", gpusOf(0, 4))[0]
	other.Name, other.Spec.Devices, other.Spec.Pool.ResourceSliceCount = "b", other.Spec.Devices[2:], 2
	l.SetPool("a", append(all, other))
	if n := nodeNamed(t, l, "a"); len(n.GPUs) != 4 {
		t.Errorf("the pool gives %+v", n.GPUs)
	}
	newer := slicesOf(t, "a", gpusOf(0, 3))
	newer[0].Name, newer[0].Spec.Pool.Generation = "c", 2
	l.SetPool("a", []*resourcev1.ResourceSlice{all[0], other, newer[0]})
	if n := nodeNamed(t, l, "a"); len(n.GPUs) != 3 {
		t.Errorf("the newest generation gives %+v", n.GPUs)
	}
	twice := slicesOf(t, "a", gpusOf(0, 3))
	twice[0].Spec.Devices = append(twice[0].Spec.Devices, twice[0].Spec.Devices[0])
	l.SetPool("a", twice)
	if n := nodeNamed(t, l, "a"); len(n.GPUs) != 0 {
		t.Errorf("a pool with two devices of a name gives %+v", n.GPUs)
	}
	l.SetPool("a", nil)
	l.SetNode("a", nil)
	if l.Inventory().Len() != 1 || len(l.nodes) != 0 || len(l.sorts.varieties) != 0 || len(l.sorts.classes) != 0 {
		t.Errorf("all has gone, and there are %d nodes, %d varieties, %d classes", len(l.nodes), len(l.sorts.varieties), len(l.sorts.classes))
	}
}

// What claims have of devices that vanished waits for them.
func TestClaimsOutliveDevices(t *testing.T) {
	l := newLedger(t)
	claim := claimOf(result("a", dra.Name(uuidOf(0, 1), dra.Shared), "10Gi", "30", "1"))
	l.SetClaim("ns/before", claim)
	l.SetNode("a", machine("64", "256Gi"))
	l.SetPool("a", slicesOf(t, "a", gpusOf(0, 2)))
	has := func(index int, granted uint64) {
		t.Helper()
		if g := nodeNamed(t, l, "a").GPUs[index]; g.Granted != granted || g.Tenants != int(min(granted, 1)) {
			t.Errorf("%+v: want %d bytes granted", g, granted)
		}
	}
	has(1, 10*gib)
	l.SetPool("a", slicesOf(t, "a", gpusOf(0, 1)))
	l.SetPool("a", slicesOf(t, "a", gpusOf(0, 2)))
	has(1, 10*gib)
	l.SetNode("a", nil)
	l.SetPool("a", nil)
	l.SetNode("a", machine("64", "256Gi"))
	l.SetPool("a", slicesOf(t, "a", gpusOf(0, 2)))
	has(1, 10*gib)
	other := gpusOf(0, 2)
	other[1].Form = dra.Timeslice // the device has another name, and the GPU is the same
	l.SetPool("a", slicesOf(t, "a", other))
	has(1, 10*gib)
	l.SetClaim("ns/before", nil)
	has(1, 0)
}

// What an administrator looks at is not counted, and neither are other drivers' devices.
func TestAdminAccessIsNotCounted(t *testing.T) {
	l := newLedger(t)
	l.SetNode("a", machine("64", "256Gi"))
	l.SetPool("a", slicesOf(t, "a", gpusOf(0, 1)))
	admin, other := result("a", dra.Name(uuidOf(0, 0), dra.Shared), "10Gi"), result("a", dra.Name(uuidOf(0, 0), dra.Shared), "10Gi")
	admin.AdminAccess, other.Driver = ptr.To(true), "example.com"
	l.SetClaim("ns/admin", claimOf(admin, other))
	if g := nodeNamed(t, l, "a").GPUs[0]; g.Granted != 0 || g.Tenants != 0 {
		t.Errorf("%+v is granted", g)
	}
}

func TestServing(t *testing.T) {
	l := newLedger(t)
	gpus := gpusOf(1, 3)
	gpus[2].Model, gpus[2].Memory = "NVIDIA A100", 40*gib
	l.SetPool("a", slicesOf(t, "a", gpusOf(0, 2)))
	l.SetPool("b", slicesOf(t, "b", gpus))
	served := func(expressions ...string) (found []string) {
		classes, among := l.Serving(expressions)
		for _, name := range []string{"a", "b"} {
			for _, g := range l.pools[name].gpus {
				if classes.Has(g.class.number) && (among == "" || among.Has(g.uuid)) {
					found = append(found, g.uuid)
				}
			}
		}
		return found
	}
	all := []string{uuidOf(0, 0), uuidOf(0, 1), uuidOf(1, 0), uuidOf(1, 1), uuidOf(1, 2)}
	for _, c := range []struct {
		expressions []string
		want        []string
		evaluations int
	}{
		{nil, all, 0},
		{[]string{sharedForm}, all, 2},
		{[]string{sharedForm}, all, 0},
		{[]string{wholeForm, sharedForm}, all, 2},
		{[]string{sharedForm, `device.attributes["divvy.dev"].model.matches("A100")`}, all[4:], 2},
		{[]string{`device.capacity["divvy.dev"].memory.compareTo(quantity("60Gi")) >= 0`}, all[:4], 2},
		{[]string{`device.attributes["divvy.dev"].uuid == "` + all[2] + `"`}, all[2:3], 1},
		{[]string{sharedForm + ` && "` + all[4] + `" == device.attributes["divvy.dev"].uuid && device.attributes["divvy.dev"].model == "x"`}, nil, 1},
		{[]string{`device.attributes["divvy.dev"].uuid != "` + all[2] + `"`}, []string{all[0], all[1], all[3], all[4]}, 5},
		{[]string{`device.attributes["divvy.dev"].uuid == "` + all[2] + `" || true`}, all, 5},
		{[]string{`device.attributes["divvy.dev"].numaNode == 0`, sharedForm}, all, 2},
		{[]string{`device.attributes["divvy.dev"]["index"] == 1`}, []string{all[1], all[3]}, 3},
		{[]string{`device.attributes["divvy.dev"].exists(k, k == "uuid")`}, all, 5},
		{[]string{`"model" in device.attributes["divvy.dev"]`}, all, 5},
		{[]string{`device.attributes["resource.kubernetes.io"].pciBusID == "0000:02:00.0"`, sharedForm}, all[4:], 3},
		{[]string{`cel.bind(d, device.attributes["divvy.dev"], d.numaNode == 0)`}, all, 5},
		{[]string{`device.attributes["divvy.dev"].nothing == "x"`}, nil, 2},
		{[]string{`this is no expression`}, nil, 0},
		{[]string{`device.driver == "other"`}, nil, 2},
	} {
		before := l.selectors.evaluated
		if got := served(c.expressions...); !slices.Equal(got, c.want) {
			t.Errorf("%q: %v, want %v", c.expressions, got, c.want)
		}
		if n := l.selectors.evaluated - before; n != c.evaluations {
			t.Errorf("%q took %d evaluations, want %d", c.expressions, n, c.evaluations)
		}
	}
	// What is known of devices is not asked again when others come, and what was said of a device ends with it.
	before := l.selectors.evaluated
	l.SetPool("b", slicesOf(t, "b", gpus))
	gpus[1].UUID = uuidOf(9, 9)
	l.SetPool("b", slicesOf(t, "b", gpus))
	if got := served(`device.attributes["divvy.dev"].uuid == "` + uuidOf(9, 9) + `"`); !slices.Equal(got, []string{uuidOf(9, 9)}) {
		t.Errorf("%v", got)
	}
	if got := served(`device.attributes["divvy.dev"]["index"] == 1`); !slices.Equal(got, []string{all[1], uuidOf(9, 9)}) {
		t.Errorf("%v", got)
	}
	if n := l.selectors.evaluated - before; n != 1 {
		t.Errorf("one device of five is new, and that took %d evaluations", n)
	}
}

func TestLocations(t *testing.T) {
	l := newLedger(t)
	l.SetNode("a", machine("64", "256Gi"))
	gpus := gpusOf(0, 6)
	gpus[5].Location = nil
	gpus[0].Location.Clique, gpus[3].Location.Clique = "x", "x"
	l.SetPool("a", slicesOf(t, "a", gpus))
	n := nodeNamed(t, l, "a")
	for _, c := range []struct {
		a, b int
		want alloc.Relation
		near bool // under one host bridge
	}{
		{0, 1, alloc.RelationHost, true},
		{0, 2, alloc.RelationNUMA, false},
		{0, 3, alloc.RelationNVLink, false},
		{0, 4, alloc.RelationSystem, false},
		{0, 5, alloc.RelationNone, false},
	} {
		if n.Near[c.a][c.b] != c.want || n.Near[c.b][c.a] != c.want {
			t.Errorf("GPUs %d and %d are related by %d and %d, want %d", c.a, c.b, n.Near[c.a][c.b], n.Near[c.b][c.a], c.want)
		}
		if near := n.GPUs[c.a].Location.Root == n.GPUs[c.b].Location.Root; near != c.near {
			t.Errorf("GPUs %d and %d are at %+v and %+v", c.a, c.b, n.GPUs[c.a].Location, n.GPUs[c.b].Location)
		}
	}
	if n.GPUs[5].Location != (alloc.Location{}) || n.GPUs[0].Location.Clique == 0 || n.GPUs[0].Capability.Compute != 900 {
		t.Errorf("%+v", n.GPUs)
	}
	none := gpusOf(0, 2)
	none[0].Location, none[1].Location = nil, nil
	l.SetPool("a", slicesOf(t, "a", none))
	if n := nodeNamed(t, l, "a"); n.Near != nil {
		t.Errorf("nothing is known, and GPUs are related by %v", n.Near)
	}
}
