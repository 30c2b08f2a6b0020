package demand_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/dialect"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
)

// withCards publishes cards at these places on a node, each with so many slots.
func (c *cluster) withCards(node string, slots int, at ...pool.Location) *cluster {
	if c.classes[v1alpha1.ClassNIC] == nil {
		c.classes[v1alpha1.ClassNIC] = madeClass(v1alpha1.ClassNIC, `device.driver == "divvy.dev" && device.attributes["divvy.dev"].form == "nic-shared"`)
	}
	text := func(s string) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{StringValue: &s} }
	number := func(n int) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{IntValue: ptr.To(int64(n))} }
	var devices []resourcev1.Device
	for i, l := range at {
		between := l.Switch
		if between == "" {
			between = l.PCI
		}
		devices = append(devices, resourcev1.Device{
			Name: fmt.Sprintf("nic-%d-shared", i), AllowMultipleAllocations: ptr.To(true),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				v1alpha1.AttributeForm: text(v1alpha1.FormNIC), v1alpha1.AttributeSwitch: text(between), v1alpha1.AttributeRDMADevice: text(fmt.Sprint("mlx5_", i)),
				v1alpha1.AttributeNUMANode: number(l.NUMANode), "resource.kubernetes.io/pcieRoot": text(l.Root),
			},
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{v1alpha1.CapacitySlots: {
				Value: *resource.NewQuantity(int64(slots), resource.DecimalSI),
				RequestPolicy: &resourcev1.CapacityRequestPolicy{
					Default:    ptr.To(resource.MustParse("1")),
					ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: ptr.To(resource.MustParse("0")), Step: ptr.To(resource.MustParse("1"))},
				},
			}},
		})
	}
	for _, slice := range c.slices {
		if slice.Spec.Pool.Name == node {
			slice.Spec.Pool.ResourceSliceCount++
		}
	}
	c.slices = append(c.slices, &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node + "-cards"},
		Spec:       resourcev1.ResourceSliceSpec{Driver: v1alpha1.Driver, NodeName: &node, Devices: devices, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 2}},
	})
	return c
}

// pairsOf is what the webhook makes of a container's limits.
func pairsOf(t testing.TB, reach v1alpha1.PairReach, limits string) resourcev1.ResourceClaimSpec {
	t.Helper()
	translator, err := dialect.NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\nscheduler: {users: [s]}\ndialects: {plain: {}}"))
	if err != nil {
		t.Fatal(err)
	}
	list := corev1.ResourceList{}
	for one := range strings.FieldsSeq(limits) {
		name, amount, _ := strings.Cut(one, "=")
		list[corev1.ResourceName("divvy.dev/"+name)] = resource.MustParse(amount)
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: list}}}}}
	pod.Annotations = map[string]string{v1alpha1.PairsFallbackAnnotation: string(reach)}
	made, err := translator.Translate(pod, dialect.Inventory{Sizes: []uint64{80 << 30}, Name: func() string { return v1alpha1.ClaimName([10]byte{1}) }})
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range made.Described {
		return spec
	}
	t.Fatal("nothing is described")
	return resourcev1.ResourceClaimSpec{}
}

// chosenAlone has each request of a claim select the device that was allocated to it.
func chosenAlone(claim *demand.Claim, result *resourcev1.AllocationResult) *resourcev1.ResourceClaim {
	out := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}, Spec: *claim.Spec.DeepCopy()}
	only := func(name string) resourcev1.DeviceSelector {
		for _, r := range result.Devices.Results {
			if r.Request != name {
				continue
			}
			if uuid, _, ok := pool.Parse(r.Device); ok {
				return selecting(fmt.Sprintf(`device.attributes["divvy.dev"].uuid == %q`, uuid))[0]
			}
			return selecting(fmt.Sprintf(`device.attributes["divvy.dev"].rdmaDevice == "mlx5_%s"`, strings.TrimSuffix(strings.TrimPrefix(r.Device, "nic-"), "-shared")))[0]
		}
		return selecting("false")[0]
	}
	for i := range out.Spec.Devices.Requests {
		r := &out.Spec.Devices.Requests[i]
		if r.Exactly != nil {
			r.Exactly.Selectors = append(slices.Clone(r.Exactly.Selectors), only(r.Name))
		}
		for k := range r.FirstAvailable {
			r.FirstAvailable[k].Selectors = append(slices.Clone(r.FirstAvailable[k].Selectors), only(r.Name+"/"+r.FirstAvailable[k].Name))
		}
	}
	return out
}

// Pairs are placed by the allocator, written as Kubernetes' allocator writes the same devices, and counted by the ledger as
// the place that it was given.
func TestPairs(t *testing.T) {
	gpus := gpusOf(0, 8, 80<<30)
	var at []pool.Location
	for i := range 3 { // the fourth switch has no card, one bridge has one below no switch, and so has one socket
		at = append(at, *gpus[2*i].Location)
		at[i].PCI = fmt.Sprintf("0000:a%d:00.0", i)
	}
	at = append(at, pool.Location{PCI: "0000:b0:00.0", Root: gpus[6].Location.Root, NUMANode: 1}, pool.Location{PCI: "0000:b1:00.0", Root: "pci0000:ff", NUMANode: 0})
	c := newCluster(t, gpus, gpusOf(100, 8, 80<<30)).withCards("node-0", 2, at...)
	l := c.ledger(t)
	for _, test := range []struct {
		reach  v1alpha1.PairReach
		limits string
		want   string // levels of the pairs, in order; "" for none
	}{
		{v1alpha1.ReachStrict, "pairs=1", "strict"},
		{v1alpha1.ReachStrict, "pairs=6", "strict strict strict strict strict strict"},
		{v1alpha1.ReachStrict, "pairs=7", ""},
		{v1alpha1.ReachBridge, "pairs=8", "strict strict strict strict strict strict bridge bridge"},
		{v1alpha1.ReachSocket, "pairs=8", "strict strict strict strict strict strict bridge bridge"},
		{v1alpha1.ReachStrict, "pairs=2 gpu-memory=4Gi gpu-cores=20", "strict strict"},
		{v1alpha1.ReachStrict, "pairs=6 gpu-memory-percent=50", "strict strict strict strict strict strict"},
		{v1alpha1.ReachSocket, "pairs=2 gpu-memory=4Gi", "strict strict"},
		{v1alpha1.ReachStrict, "pairs=9", ""},
	} {
		claims := claimsOf(pairsOf(t, test.reach, test.limits))
		d, err := demand.Of(&corev1.Pod{}, claims, l)
		if err != nil {
			t.Fatal(err)
		}
		choices, err := l.Inventory().PodChoices(d.Pod(), nil)
		if err != nil {
			t.Fatal(err)
		}
		a, ok := choices.Next()
		if !ok {
			if test.want != "" {
				t.Errorf("%s %s does not fit", test.reach, test.limits)
			}
			continue
		}
		got, err := d.Allocations(a, l)
		if err != nil {
			t.Fatal(err)
		}
		want, err := c.upstream([]*resourcev1.ResourceClaim{chosenAlone(&got[0].Claim, got[0].Result)}, a.Name)
		if err != nil || len(want) != 1 {
			t.Fatalf("%s %s: Kubernetes does not allocate %s: %v", test.reach, test.limits, written(got), err)
		}
		mine, theirs := got[0].Result.DeepCopy(), want[0].DeepCopy()
		if err := sameShares(mine, theirs); err != nil {
			t.Error(err)
		}
		if !equality.Semantic.DeepEqual(mine, theirs) {
			t.Errorf("written is\n%sKubernetes writes\n%s", written(mine), written(theirs))
		}
		if levels := levelsOf(t, l, a); levels != test.want {
			t.Errorf("%s %s: pairs are %s, want %s", test.reach, test.limits, levels, test.want)
		}
		countsOnce(t, l, claims[0], a, got[0].Result)
	}
}

// levelsOf says how near the pairs of a place are.
func levelsOf(t testing.TB, published demand.Published, a alloc.Assignment) string {
	t.Helper()
	var levels []string
	for i := range a.Shares {
		_, gpu, ok := published.Device(a.Name, &alloc.Share{UUID: a.Shares[i].UUID})
		_, card, too := published.Device(a.Name, &alloc.Share{NIC: a.Shares[i].NIC})
		if !ok || !too {
			t.Fatalf("%+v is not published", a.Shares[i])
		}
		levels = append(levels, string(v1alpha1.PairReaches()[dialect.Level(gpu, card)]))
	}
	slices.Sort(levels)
	slices.Reverse(levels)
	slices.SortStableFunc(levels, func(a, b string) int { return v1alpha1.PairReach(a).Levels() - v1alpha1.PairReach(b).Levels() })
	return strings.Join(levels, " ")
}

// countsOnce reserves a place, tells the claim with its allocation, and ends it: at each step the sums are the same as those
// of a ledger made anew, and in the end nothing is left.
func countsOnce(t *testing.T, l interface {
	demand.Published
	Reserve(key string, a alloc.Assignment) error
	SetClaim(key string, claim *resourcev1.ResourceClaim)
	Inventory() *alloc.Inventory
}, claim demand.Claim, a alloc.Assignment, result *resourcev1.AllocationResult) {
	t.Helper()
	sums := func() string {
		n := l.Inventory().Node(a.Node)
		var text []string
		for i := range n.GPUs {
			text = append(text, fmt.Sprint(n.GPUs[i].Granted, n.GPUs[i].Cores, n.GPUs[i].Tenants, n.GPUs[i].Fence))
		}
		for i := range n.NICs {
			text = append(text, fmt.Sprint(n.NICs[i].Name, n.NICs[i].Granted))
		}
		return strings.Join(text, ", ")
	}
	before := sums()
	adopted := claim
	adopted.Allocation = result
	given, ok := demand.Adopt(&adopted, l) // as the scheduler reserves what it is about to write
	if !ok {
		t.Fatalf("nothing is adopted of %s", written(result))
	}
	if err := l.Reserve(claim.Key(), given); err != nil {
		t.Fatal(err)
	}
	reserved := sums()
	if reserved == before {
		t.Error("nothing is reserved")
	}
	object := &resourcev1.ResourceClaim{Spec: *claim.Spec, Status: resourcev1.ResourceClaimStatus{Allocation: result}}
	l.SetClaim(claim.Key(), object)
	if after := sums(); after != reserved {
		t.Errorf("reserved are\n%s, with the claim\n%s", reserved, after)
	}
	l.SetClaim(claim.Key(), nil)
	if after := sums(); after != before {
		t.Errorf("nothing is held, and\n%s is counted instead of\n%s", after, before)
	}
}

// Random pods with pairs come and go: nothing is given twice, and the ledger says the same as one made anew.
func TestPairsComeAndGo(t *testing.T) {
	gpus := gpusOf(0, 8, 80<<30)
	var at []pool.Location
	for i := range 4 {
		at = append(at, *gpus[2*i].Location)
		at[i].PCI = fmt.Sprintf("0000:a%d:00.0", i)
	}
	c := newCluster(t, gpus, gpusOf(100, 4, 40<<30)).withCards("node-0", 3, at...)
	l := c.ledger(t)
	random := rand.New(rand.NewPCG(3, 3))
	there := map[string]bool{}
	placed, refused := 0, 0
	for step := range 300 {
		key := fmt.Sprint("default/claim-", random.IntN(12))
		if there[key] {
			l.SetClaim(key, nil)
			delete(there, key)
			continue
		}
		limits := fmt.Sprintf("pairs=%d", 1+random.IntN(4))
		if random.IntN(2) == 0 {
			limits += fmt.Sprintf(" gpu-memory=%dGi", 10*(1+random.IntN(6)))
		}
		spec := pairsOf(t, v1alpha1.PairReaches()[random.IntN(3)], limits)
		claim := demand.Claim{Namespace: "default", Name: strings.TrimPrefix(key, "default/"), Spec: &spec}
		d, err := demand.Of(&corev1.Pod{}, []demand.Claim{claim}, l)
		if err != nil {
			t.Fatal(err)
		}
		choices, err := l.Inventory().PodChoices(d.Pod(), nil)
		if err != nil {
			t.Fatal(err)
		}
		a, ok := choices.Next()
		if !ok {
			refused++
			continue
		}
		got, err := d.Allocations(a, l)
		if err != nil {
			t.Fatal(err)
		}
		l.SetClaim(key, &resourcev1.ResourceClaim{Spec: spec, Status: resourcev1.ResourceClaimStatus{Allocation: got[0].Result}})
		there[key] = true
		placed++
		policy, _ := alloc.PolicyNamed(alloc.DefaultPolicy)
		if n, first, err := l.State().Differences(policy); n > 0 || err != nil {
			t.Fatalf("step %d: %d differences: %s, %v", step, n, first, err)
		}
		for _, nic := range l.Inventory().Node(a.Node).NICs {
			if nic.Granted < 0 || nic.Granted > nic.Slots {
				t.Fatalf("step %d: card %+v", step, nic)
			}
		}
		if len(l.Fences()) > 0 {
			t.Fatalf("step %d: %+v", step, l.Fences())
		}
	}
	if placed < 60 || refused < 20 {
		t.Errorf("%d were placed and %d refused", placed, refused)
	}
}

// A claim for pairs that is not as a translation writes it, and one for a card alone, are for Kubernetes' allocator.
func TestOtherCardsAreElsewhere(t *testing.T) {
	c := newCluster(t, gpusOf(0, 2, 80<<30)).withCards("node-0", 2, *gpusOf(0, 2, 80<<30)[0].Location)
	l := c.ledger(t)
	changed := pairsOf(t, v1alpha1.ReachBridge, "pairs=2")
	changed.Devices.Constraints = changed.Devices.Constraints[1:]
	for name, spec := range map[string]resourcev1.ResourceClaimSpec{"changed": changed, "a card": asks(v1alpha1.ClassNIC, 1)} {
		if _, err := demand.Of(&corev1.Pod{}, claimsOf(spec), l); !errors.Is(err, demand.ErrElsewhere) {
			t.Errorf("%s: %v", name, err)
		}
	}
	delete(c.classes, v1alpha1.ClassNIC)
	if _, err := demand.Of(&corev1.Pod{}, claimsOf(pairsOf(t, v1alpha1.ReachStrict, "pairs=1")), c.ledger(t)); !errors.Is(err, demand.ErrDemand) {
		t.Errorf("without the class: %v", err)
	}
}
