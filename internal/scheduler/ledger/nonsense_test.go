package ledger

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	dra "github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// take has a ledger of one node follow slices, and claims for everything in them, and checks it.
func take(t testing.TB, all []*resourcev1.ResourceSlice, consumed ...string) {
	t.Helper()
	l := newLedger(t)
	l.SetNode("a", machine("64", "256Gi"))
	pools, names := map[string][]*resourcev1.ResourceSlice{}, map[string]bool{"a": true}
	for _, s := range all {
		pools[s.Spec.Pool.Name] = append(pools[s.Spec.Pool.Name], s)
		if s.Spec.NodeName != nil {
			names[*s.Spec.NodeName] = true
		}
	}
	for name := range names {
		l.SetNode(name, machine("64", "256Gi"))
	}
	for name, some := range pools {
		l.SetPool(name, some)
	}
	check(t, l)
	for _, r := range []alloc.Request{
		{Count: 1, Memory: v1alpha1.Bytes(gib)}, {Count: 2, Whole: true}, {Count: 1, Profile: "1g.10gb"}, {Count: 1, Profile: "7g.80gb"},
	} {
		r.Classes, r.Among = l.Serving([]string{`device.driver == "divvy.dev"`, `has(device.attributes["divvy.dev"].uuid)`})
		if a, err := alloc.Search(l.Inventory(), r); err == nil {
			if l.Reserve("ns/reserved", a) == nil {
				check(t, l)
			}
			l.Unreserve("ns/reserved")
		}
	}
	l.Instances([]string{`true`})
	k := 0
	for _, s := range all {
		for i := range s.Spec.Devices {
			for range 3 {
				k++
				l.SetClaim(fmt.Sprint("ns/", k), claimOf(result(s.Spec.Pool.Name, s.Spec.Devices[i].Name, consumed...)))
			}
			l.Location(s.Spec.Pool.Name, s.Spec.Devices[i].Name)
		}
	}
	check(t, l)
	for name := range pools {
		l.SetPool(name, nil)
	}
	check(t, l)
	if len(l.sorts.varieties)+len(l.sorts.classes) > 0 {
		t.Fatalf("all pools have gone, and %d varieties are left", len(l.sorts.varieties))
	}
}

// check fails the test unless a ledger equals a rebuild and no amount has overflowed.
func check(t testing.TB, l *Ledger) {
	t.Helper()
	rebuilt, err := l.Rebuilt(policyOf(t))
	if err != nil {
		t.Fatal(err)
	}
	if text := l.Difference(rebuilt); text != "" {
		t.Fatal("rebuilt: ", text)
	}
	inv := l.Inventory()
	for i := range inv.Len() {
		n := inv.Node(i)
		for _, g := range n.GPUs {
			if g.Cores < 0 || g.Tenants < 0 || g.Granted > 1<<60 || g.Fence == "" && (g.Granted > g.Capacity || g.Cores > 100) {
				t.Fatalf("%+v", g)
			}
		}
		if len(n.GPUs) > alloc.MaxGPUs {
			t.Fatalf("%d GPUs", len(n.GPUs))
		}
	}
	l.Fences()
}

// Whatever somebody writes into the fields of slices and claims: nothing breaks, overflows or is counted otherwise by a
// rebuild.
func TestNonsenseInPools(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	m := hopper(t)
	amounts := []string{"0", "-1", "9223372036854775807", "1e30", "-1e30", "1m", "80Gi", "200", "1"}
	for range 20 {
		gpus := gpusOf(0, 3+random.IntN(16))
		gpus[0] = divided(m, gpus[0], m.Layouts()[5], true)
		gpus[1] = divided(m, gpus[1], m.Layouts()[9], false)
		all := slicesOf(t, "a", gpus)
		for range 1 + random.IntN(6) {
			spoil(random, all[random.IntN(len(all))], amounts)
		}
		take(t, all, amounts[random.IntN(len(amounts))], amounts[random.IntN(len(amounts))], amounts[random.IntN(len(amounts))])
	}
}

// spoil changes something of a slice.
func spoil(random *rand.Rand, s *resourcev1.ResourceSlice, amounts []string) {
	amount := resource.MustParse(amounts[random.IntN(len(amounts))])
	for i := range s.Spec.SharedCounters {
		for name := range s.Spec.SharedCounters[i].Counters {
			if random.IntN(6) == 0 {
				s.Spec.SharedCounters[i].Counters[name] = resourcev1.Counter{Value: amount}
			}
		}
	}
	if len(s.Spec.Devices) == 0 {
		return
	}
	d := &s.Spec.Devices[random.IntN(len(s.Spec.Devices))]
	other := s.Spec.Devices[random.IntN(len(s.Spec.Devices))].DeepCopy()
	text := []string{"", "GPU-", "GPU-a|b", "x", strings.Repeat("y", 70), uuidOf(0, 1)}[random.IntN(6)]
	switch random.IntN(9) {
	case 0:
		d.Capacity[v1alpha1.CapacityMemory] = resourcev1.DeviceCapacity{Value: amount}
	case 1:
		d.Capacity[v1alpha1.CapacityCores] = resourcev1.DeviceCapacity{Value: amount, RequestPolicy: &resourcev1.CapacityRequestPolicy{Default: &amount, ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: &amount, Step: &amount}}}
	case 2:
		d.Capacity[v1alpha1.CapacitySlots] = resourcev1.DeviceCapacity{Value: amount, RequestPolicy: &resourcev1.CapacityRequestPolicy{ValidValues: []resource.Quantity{amount}}}
	case 3:
		d.Attributes[v1alpha1.AttributeUUID] = resourcev1.DeviceAttribute{StringValue: &text}
	case 4:
		d.Attributes[v1alpha1.AttributeParent] = resourcev1.DeviceAttribute{StringValue: &text}
	case 5:
		d.Attributes[v1alpha1.AttributeIndex] = resourcev1.DeviceAttribute{IntValue: new(amount.Value())}
	case 6:
		d.AllowMultipleAllocations = other.AllowMultipleAllocations
	case 7:
		d.ConsumesCounters = other.ConsumesCounters
	case 8:
		d.Name = []string{other.Name, dra.InstanceName(uuidOf(0, 1), "1g.10gb", 31), "gpu-", "x"}[random.IntN(4)]
	}
}

// FuzzSlices reads slices as their author writes them.
func FuzzSlices(f *testing.F) {
	m := hopper(f)
	gpus := gpusOf(0, 3)
	gpus[1], gpus[2] = divided(m, gpus[1], 0, true), divided(m, gpus[2], m.Layouts()[7], false)
	for _, some := range [][]dra.GPU{gpus[:1], gpus[1:2], gpus[2:]} {
		text, err := json.Marshal(slicesOf(f, "a", some))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var all []*resourcev1.ResourceSlice
		if json.Unmarshal(text, &all) != nil || len(all) > 8 {
			return
		}
		for _, s := range all {
			if s == nil || len(s.Spec.Devices) > 64 {
				return
			}
		}
		take(t, all, "1Gi", "10", "1")
	})
}

// Of a device that is not published the name alone tells that it is a card's, by the rule of those who publish cards.
func TestCardNames(t *testing.T) {
	l := newLedger(t)
	for name, want := range map[string]bool{
		"nic-0000-81-00-0-shared": true, "nic-soft-rxe0-shared": true, "nic-0000-81-00-1-vf": false, "nic--shared": false, "nic-A-shared": false, "nic-a b-shared": false,
	} {
		node, shares := l.shares(&taking{pool: "gone", device: name, slots: 2})
		if got := len(shares) == 2 && shares[1].NIC == name && node == "gone"; got != want {
			t.Errorf("%q is a shared card: %v, want %v", name, got, want)
		}
	}
}
