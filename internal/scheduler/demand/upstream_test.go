package demand_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
)

func (c *cluster) Get(name string) (*resourcev1.DeviceClass, error) {
	if class := c.classes[name]; class != nil {
		return class, nil
	}
	return nil, fmt.Errorf("no class %s", name)
}

func (c *cluster) List() (all []*resourcev1.DeviceClass, _ error) {
	for _, class := range c.classes {
		all = append(all, class)
	}
	return all, nil
}

// upstream allocates claims on a node by Kubernetes' own allocator with the features that 1.36 has on. Of instances it has
// these alone, in this order, if there are any.
func (c *cluster) upstream(claims []*resourcev1.ResourceClaim, node string, instances ...string) ([]resourcev1.AllocationResult, error) {
	all := slices.Clone(c.slices)
	for i := range all {
		if len(instances) > 0 {
			all[i] = all[i].DeepCopy()
			all[i].Spec.Devices = slices.DeleteFunc(all[i].Spec.Devices, func(d resourcev1.Device) bool {
				_, _, ok := pool.ParseInstance(d.Name)
				return ok && !slices.Contains(instances, d.Name)
			})
			slices.SortStableFunc(all[i].Spec.Devices, func(x, y resourcev1.Device) int {
				return cmp.Compare(slices.Index(instances, x.Name), slices.Index(instances, y.Name))
			})
		}
	}
	features := structured.Features{
		AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true, PartitionableDevices: true, PrioritizedList: true,
	}
	state := structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
	allocator, err := structured.NewAllocator(context.Background(), features, state, c, all, c.cel)
	if err != nil {
		return nil, err
	}
	return allocator.Allocate(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, claims)
}

// pinned adds to the requests of a claim that they select what was allocated to them: of several alternatives the others
// select nothing.
func pinned(claim *demand.Claim, result *resourcev1.AllocationResult) *resourcev1.ResourceClaim {
	out := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}, Spec: *claim.Spec.DeepCopy()}
	only := func(name string) resourcev1.DeviceSelector {
		terms := []string{"false"}
		for _, r := range result.Devices.Results {
			if r.Request != name {
				continue
			}
			uuid, _, _ := pool.Parse(r.Device)
			term := fmt.Sprintf(`device.attributes["divvy.dev"].uuid == %q`, uuid)
			if profile, _, ok := pool.ParseInstance(r.Device); ok {
				term = fmt.Sprintf(`device.attributes["divvy.dev"].parentUUID == %q && device.attributes["divvy.dev"].profile == %q`, uuid, profile)
			}
			terms = append(terms, term)
		}
		return selecting(strings.Join(terms, " || "))[0]
	}
	for i := range out.Spec.Devices.Requests {
		r := &out.Spec.Devices.Requests[i]
		if r.Exactly != nil {
			r.Exactly.Selectors = append(r.Exactly.Selectors, only(r.Name))
		}
		for k := range r.FirstAvailable {
			r.FirstAvailable[k].Selectors = append(r.FirstAvailable[k].Selectors, only(r.Name+"/"+r.FirstAvailable[k].Name))
		}
	}
	return out
}

// place gives a pod the best place. ok is false where there is none.
func (c *cluster) place(t testing.TB, d *demand.Demand) (alloc.Assignment, bool) {
	t.Helper()
	policy, err := alloc.PolicyNamed("bestfit")
	if err != nil {
		t.Fatal(err)
	}
	nodes := slices.Clone(c.nodes)
	for i := range nodes {
		nodes[i].GPUs = slices.Clone(nodes[i].GPUs)
	}
	inventory, err := alloc.NewInventory(nodes, policy)
	if err != nil {
		t.Fatal(err)
	}
	choices, err := inventory.PodChoices(d.Pod(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return choices.Next()
}

// check has a pod's claims read, placed and written, and compares with what Kubernetes' allocator writes for the same
// devices, and with what is read of it again. It returns the devices, or nil where the claims do not fit.
func (c *cluster) check(t testing.TB, pod *corev1.Pod, specs ...resourcev1.ResourceClaimSpec) []string {
	t.Helper()
	return c.checkBy(t, c, func(d *demand.Demand) (alloc.Assignment, bool) { return c.place(t, d) }, pod, specs...)
}

// checkBy is check by what somebody else tells and where they place.
func (c *cluster) checkBy(t testing.TB, by demand.Published, place func(d *demand.Demand) (alloc.Assignment, bool), pod *corev1.Pod, specs ...resourcev1.ResourceClaimSpec) []string {
	t.Helper()
	claims := claimsOf(specs...)
	d, err := demand.Of(pod, claims, by)
	if err != nil {
		t.Fatal(err)
	}
	a, ok := place(&d)
	var asked []*resourcev1.ResourceClaim
	if !ok {
		for i := range claims {
			asked = append(asked, &resourcev1.ResourceClaim{Spec: *claims[i].Spec})
		}
		for _, n := range c.nodes {
			if results, err := c.upstream(asked, n.Name); err == nil && len(results) > 0 && !repeats(asked, results) {
				t.Errorf("does not fit, but Kubernetes allocates %s", written(results))
			}
		}
		return nil
	}
	got, err := d.Allocations(a, by)
	if err != nil {
		t.Fatal(err)
	}
	var instances []string
	for i := range got {
		asked = append(asked, pinned(&got[i].Claim, got[i].Result))
		for _, r := range got[i].Result.Devices.Results {
			if _, _, ok := pool.ParseInstance(r.Device); ok {
				instances = append(instances, r.Device)
			}
		}
	}
	want, err := c.upstream(asked, a.Name, instances...)
	if err != nil || len(want) != len(got) {
		t.Fatalf("Kubernetes does not allocate %s: %v", written(got), err)
	}
	var devices []string
	for i := range got {
		mine, theirs := got[i].Result.DeepCopy(), want[i].DeepCopy()
		if err := sameShares(mine, theirs); err != nil {
			t.Error(err)
		}
		if !equality.Semantic.DeepEqual(mine, theirs) {
			t.Errorf("written is\n%sKubernetes writes\n%s", written(mine), written(theirs))
		}
		for _, r := range mine.Devices.Results {
			devices = append(devices, r.Device)
		}
	}
	adoptsAgain(t, by, a, got)
	return devices
}

// repeats reports whether a claim got a device twice that asks for different UUIDs: of the devices of a request, Kubernetes'
// allocator compares only the last with those of other requests.
func repeats(claims []*resourcev1.ResourceClaim, results []resourcev1.AllocationResult) bool {
	for i, claim := range claims {
		seen := map[string]bool{}
		for _, r := range results[i].Devices.Results {
			if seen[r.Device] && slices.ContainsFunc(claim.Spec.Devices.Constraints, func(c resourcev1.DeviceConstraint) bool { return c.DistinctAttribute != nil }) {
				return true
			}
			seen[r.Device] = true
		}
	}
	return false
}

// adoptsAgain compares a place with what is read of its allocations.
func adoptsAgain(t testing.TB, by demand.Published, a alloc.Assignment, written []demand.Allocation) {
	t.Helper()
	var again []alloc.Share
	for i := range written {
		claim := written[i].Claim
		claim.Allocation = written[i].Result
		adopted, ok := demand.Adopt(&claim, by)
		if ok != (len(claim.Allocation.Devices.Results) > 0) || ok && adopted.Name != a.Name || adopted.CPU != 0 || adopted.Memory != 0 {
			t.Errorf("adopted is %+v", adopted)
		}
		again = append(again, adopted.Shares...)
	}
	plain := func(shares []alloc.Share) []alloc.Share {
		shares = slices.Clone(shares)
		for i := range shares {
			shares[i].Claim, shares[i].Alternative, shares[i].GPU = 0, 0, 0
		}
		slices.SortFunc(shares, func(x, y alloc.Share) int {
			return cmp.Or(cmp.Compare(x.UUID, y.UUID), cmp.Compare(x.Start, y.Start), cmp.Compare(x.Limit, y.Limit), cmp.Compare(x.Cores, y.Cores))
		})
		return shares
	}
	if !slices.Equal(plain(again), plain(a.Shares)) {
		t.Errorf("placed are %+v, adopted %+v", a.Shares, again)
	}
}

// sameShares takes the IDs of shares away, which are different each time, after looking that there are as many.
func sameShares(a, b *resourcev1.AllocationResult) error {
	if len(a.Devices.Results) != len(b.Devices.Results) {
		return errors.New("another number of devices")
	}
	seen := map[string]bool{}
	for i := range a.Devices.Results {
		mine, theirs := a.Devices.Results[i].ShareID, b.Devices.Results[i].ShareID
		if (mine == nil) != (theirs == nil) {
			return fmt.Errorf("result %d: share %v, Kubernetes gives %v", i, mine, theirs)
		}
		if mine != nil && (len(*mine) != len(*theirs) || seen[string(*mine)]) {
			return fmt.Errorf("result %d: share %s", i, *mine)
		}
		if mine != nil {
			seen[string(*mine)] = true
		}
		a.Devices.Results[i].ShareID, b.Devices.Results[i].ShareID = nil, nil
	}
	return nil
}

func written(v any) string {
	text, err := yaml.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func claimsOf(specs ...resourcev1.ResourceClaimSpec) (all []demand.Claim) {
	for i := range specs {
		all = append(all, demand.Claim{Namespace: "default", Name: fmt.Sprint("claim-", i), Spec: &specs[i]})
	}
	return all
}

// asks makes a claim of one request; amounts are pairs of a capacity and a quantity.
func asks(class string, count int64, amounts ...string) resourcev1.ResourceClaimSpec {
	exactly := &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count, Capacity: amountsOf(amounts...)}
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: exactly}}}}
}

func amountsOf(amounts ...string) *resourcev1.CapacityRequirements {
	if len(amounts) == 0 {
		return nil
	}
	c := &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{}}
	for i := 0; i < len(amounts); i += 2 {
		c.Requests[resourcev1.QualifiedName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	return c
}

func share(amounts ...string) resourcev1.ResourceClaimSpec {
	return asks(v1alpha1.ClassShare, 1, amounts...)
}

// gpusOf are GPUs of one model, in two NUMA nodes with two switches each.
func gpusOf(first, n int, memory uint64) []pool.GPU {
	gpus := make([]pool.GPU, n)
	for i := range gpus {
		gpus[i] = pool.GPU{
			UUID: fmt.Sprintf("GPU-%08d-0000-0000-0000-000000000000", first+i), Index: i, Memory: memory,
			Model: "NVIDIA A100-SXM4-80GB", Architecture: "ampere", DriverVersion: "550.54.15", CUDA: 12040,
			Location: &pool.Location{PCI: fmt.Sprintf("0000:%02x:00.0", i+1), Root: fmt.Sprint("pci0000:0", i*4/n), Switch: fmt.Sprint("switch-", i*4/n), NUMANode: i * 2 / n, Clique: "linked"},
		}
	}
	return gpus
}
