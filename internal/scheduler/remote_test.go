package scheduler

import (
	"net/netip"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/scheduler/ledger"
	"github.com/divvy-gpu/divvy/internal/scheduler/workload"
)

// A queue is charged for a part of a GPU that nodes reach as for one of a node's own, and its cluster has such GPUs while their host
// is there.
func TestReachedGPUsAreCharged(t *testing.T) {
	policy, err := alloc.PolicyNamed(alloc.DefaultPolicy)
	if err != nil {
		t.Fatal(err)
	}
	l, err := ledger.New(policy)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := pool.RemoteSpec(pool.Host{Node: "g1", Address: netip.MustParseAddrPort("10.0.0.7:7117")}, []pool.GPU{{
		UUID: "GPU-00000000-0000-4000-8000-000000000001", Model: "NVIDIA H100", Memory: 80 << 30, Form: pool.Remote,
	}})
	if err != nil {
		t.Fatal(err)
	}
	host := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.RemoteSlice("g1")}, Spec: *spec}
	l.SetPool("remote/g1", []*resourcev1.ResourceSlice{host})
	claim := &resourcev1.ResourceClaim{}
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
		Driver: v1alpha1.Driver, Pool: "remote/g1", Device: spec.Devices[0].Name, ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{
			v1alpha1.CapacityMemory: resource.MustParse("20Gi"), v1alpha1.CapacityCores: resource.MustParse("30"), v1alpha1.CapacitySlots: resource.MustParse("1"),
		},
	}}}}
	l.SetClaim("team/c", claim)
	charges := workload.Held(l.Inventory(), l.Held("team/c")...)
	if len(charges) != 1 || len(charges[0].Models) != 1 || charges[0].Models[0] != "NVIDIA H100" || charges[0].Memory != 20<<10 || charges[0].Cores != 30 || charges[0].GPUs != 300 {
		t.Errorf("charged %+v", charges)
	}
	if has := workload.Capacity(l.Inventory(), nil); len(has) != 1 || has[0].GPUs != 1000 {
		t.Errorf("the cluster has %+v", has)
	}
	away := host.DeepCopy()
	away.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{{Key: v1alpha1.HostTaint, Value: "gone", Effect: resourcev1.DeviceTaintEffectNoExecute}}
	l.SetPool("remote/g1", []*resourcev1.ResourceSlice{away})
	if has := workload.Capacity(l.Inventory(), nil); len(has) != 0 {
		t.Errorf("its host is away, and the cluster has %+v", has)
	}
	if again := workload.Held(l.Inventory(), l.Held("team/c")...); len(again) != 1 || again[0].GPUs != 300 {
		t.Errorf("its host is away, and it is charged %+v", again)
	}
}
