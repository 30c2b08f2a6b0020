package pool

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/topology"
)

// recordedCards are the GPUs and the cards of a recorded host. Each second card is there as two virtual functions as well.
func recordedCards(t *testing.T, name string) ([]GPU, []NIC) {
	t.Helper()
	host := recorded(t, name)
	locations := Locations(host)
	var gpus []GPU
	for _, g := range host.GPUs {
		location := locations[g.UUID]
		gpus = append(gpus, GPU{UUID: g.UUID, Index: g.Index, Model: g.Name, Memory: 80 << 30, Location: &location})
	}
	return gpus, cardsOf(host)
}

func cardsOf(host *topology.Host) (cards []NIC) {
	for rail, n := range host.NICs {
		location := LocationOf(n.Device, host.Nodes)
		card := NIC{
			Key: strings.NewReplacer(":", "-", ".", "-").Replace(n.Device.Address.String()), Adapter: n.Name, Netdev: fmt.Sprintf("ib%d", rail),
			LinkType: v1alpha1.LinkInfiniBand, Rail: rail, Slots: 2, Location: &location,
		}
		cards = append(cards, card)
		for number := range rail % 2 * 2 {
			function := card
			function.Function, function.Key = true, fmt.Sprintf("%s%d", card.Key[:len(card.Key)-1], number+1)
			cards = append(cards, function)
		}
	}
	return cards
}

func with(t *testing.T, gpus []GPU, cards []NIC) *scheduler {
	t.Helper()
	resources, err := Resources(node, gpus)
	if err == nil {
		err = WithNICs(resources, node, cards)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := newScheduler(t, nil)
	s.slices = stored(t, resources)
	return s
}

// pairOf asks for a GPU and a card behind one switch.
func pairOf(class string) resourcev1.ResourceClaimSpec {
	request := func(name, class string) resourcev1.DeviceRequest {
		return resourcev1.DeviceRequest{Name: name, Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}
	}
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{request("gpu", v1alpha1.ClassWhole), request("nic", class)},
		Constraints: []resourcev1.DeviceConstraint{{
			Requests: []string{"gpu", "nic"}, MatchAttribute: ptr.To(resourcev1.FullyQualifiedName(v1alpha1.Driver + "/" + v1alpha1.AttributeSwitch)),
		}},
	}}
}

// Each GPU gets a card of its own switch by Kubernetes' allocator, and the storage's cards, behind no switch, get none.
func TestCardsMatchGPUsBySwitch(t *testing.T) {
	gpus, cards := recordedCards(t, "a800x8")
	s := with(t, gpus, cards)
	attribute := func(device string, name resourcev1.QualifiedName) string {
		for _, slice := range s.slices {
			for _, d := range slice.Spec.Devices {
				if d.Name == device && d.Attributes[name].StringValue != nil {
					return *d.Attributes[name].StringValue
				}
			}
		}
		return ""
	}
	for i := range gpus {
		got := s.take(fmt.Sprint("pair", i), pairOf(v1alpha1.ClassNIC))
		if len(got) != 2 {
			t.Fatalf("pair %d has %v", i, got)
		}
		gpu, card := attribute(got[0], v1alpha1.AttributePCIeSwitch), attribute(got[1], v1alpha1.AttributePCIeSwitch)
		if gpu == "" || gpu != card {
			t.Errorf("pair %d: %s is behind %q, %s behind %q", i, got[0], gpu, got[1], card)
		}
	}
	if got := s.take("more", pairOf(v1alpha1.ClassNIC)); got != nil {
		t.Errorf("a ninth pair has %v", got)
	}
}

// A shared card goes to as many claims as it has slots, and a virtual function to one. Neither class finds what the other has, and
// those of GPUs find no card.
func TestSlotsAndFunctions(t *testing.T) {
	_, cards := recordedCards(t, "a800x8")
	s := with(t, nil, cards[:4]) // two cards, and two functions of the second
	single := func(class string, slots int64) resourcev1.ResourceClaimSpec {
		exact := &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}
		if slots > 0 {
			exact.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{v1alpha1.CapacitySlots: number(slots)}}
		}
		return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: exact}}}}
	}
	count := func(class string, slots int64) (got []string) {
		for {
			devices := s.take(fmt.Sprint(class, slots, len(got)), single(class, slots))
			if devices == nil {
				slices.Sort(got)
				return got
			}
			got = append(got, devices...)
		}
	}
	want := map[string][]string{
		v1alpha1.ClassNIC:         {cards[0].Device(), cards[0].Device(), cards[1].Device()},
		v1alpha1.ClassNICFunction: {cards[2].Device(), cards[3].Device()},
		v1alpha1.ClassShare:       nil, v1alpha1.ClassWhole: nil, v1alpha1.ClassMIG: nil,
	}
	if both := s.take("both", single(v1alpha1.ClassNIC, 2)); len(both) != 1 {
		t.Fatalf("two slots: %v", both)
	}
	want[v1alpha1.ClassNIC] = []string{cards[1].Device(), cards[1].Device()}
	for class, devices := range want {
		if got := count(class, 0); !slices.Equal(got, devices) {
			t.Errorf("class %s gave %v, want %v", class, got, devices)
		}
	}
}

func TestNICDevice(t *testing.T) {
	n := NIC{
		Key: "0000-81-00-1", Adapter: "mlx5_2", Netdev: "ens1v0", LinkType: v1alpha1.LinkEthernet, Rail: 3, Function: true, Fault: "port-down",
		Location: &Location{PCI: "0000:81:00.1", Root: "pci0000:80", Switch: "0000:82:00.0", NUMANode: 1},
	}
	d := n.device()
	for name, want := range map[resourcev1.QualifiedName]string{
		"form": "nic-vf", "switch": "0000:82:00.0", "rdmaDevice": "mlx5_2", "netdev": "ens1v0", "linkType": "ethernet", "pcieSwitch": "0000:82:00.0",
		"resource.kubernetes.io/pcieRoot": "pci0000:80", "resource.kubernetes.io/pciBusID": "0000:81:00.1",
		"k8s.cni.cncf.io/deviceID": "0000:81:00.1", "k8s.cni.cncf.io/resourceName": "divvy.dev/rail-3-vf",
	} {
		if got := d.Attributes[name].StringValue; got == nil || *got != want {
			t.Errorf("%s is %v, want %s", name, got, want)
		}
	}
	if d.Name != "nic-0000-81-00-1-vf" || *d.Attributes["rail"].IntValue != 3 || *d.Attributes["numaNode"].IntValue != 1 || len(d.Taints) != 1 || d.Capacity != nil || d.AllowMultipleAllocations != nil {
		t.Errorf("the device is %+v", d)
	}
	n.Function, n.Slots, n.Location, n.Fault = false, 5, nil, ""
	d = n.device()
	slots := d.Capacity[v1alpha1.CapacitySlots].Value
	if d.Name != "nic-0000-81-00-1-shared" || slots.Value() != 5 || !*d.AllowMultipleAllocations || len(d.Taints) != 0 || len(d.Attributes) != 5 {
		t.Errorf("the device is %+v", d)
	}
}

func TestCardsThatCannotBe(t *testing.T) {
	for name, n := range map[string]NIC{
		"no key": {Slots: 1}, "a key with a space": {Key: "a b", Slots: 1}, "a long key": {Key: strings.Repeat("a", 60), Slots: 1},
		"a fault of two lines": {Key: "a", Slots: 1, Fault: "a\nb"}, "no slots": {Key: "a"},
	} {
		resources, err := Resources(node, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := WithNICs(resources, node, []NIC{n}); !errors.Is(err, ErrNIC) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]bool{
		"nic-0000-81-00-1-vf": true, "nic-a-shared": true, "nic--shared": false, "nic-vf": false, "nic-A-vf": false, "gpu-8dd5f44a-shared": false,
		"nic-a": false, "nic-a b-vf": false, "": false,
	} {
		if _, got := IsNIC(name); got != want {
			t.Errorf("%q is a card's: %v", name, got)
		}
		if _, _, gpus := Parse(name); gpus && want {
			t.Errorf("%q is a GPU's as well", name)
		}
	}
}

// However many cards there are, no slice has more devices than the API takes of those with taints, and none is lost.
func TestManyCards(t *testing.T) {
	gpus, _ := recordedCards(t, "a800x8")
	for _, count := range []int{0, 1, 64, 65, 300} {
		var cards []NIC
		for i := range count {
			cards = append(cards, NIC{Key: fmt.Sprintf("0000-%02x-%02x-%d", i/128, i/8%16, i%8), Adapter: fmt.Sprint("mlx5_", i), Function: true, Rail: i % 7})
		}
		s := with(t, gpus, cards)
		found := map[string]bool{}
		for _, slice := range s.slices {
			if len(slice.Spec.Devices) > resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures {
				t.Errorf("%d cards: a slice has %d devices", count, len(slice.Spec.Devices))
			}
			for _, d := range slice.Spec.Devices {
				found[d.Name] = true
			}
		}
		if len(found) != count+len(gpus) {
			t.Errorf("%d cards: %d devices", count, len(found))
		}
	}
}

// The selector of docs/rdma.md gives a pod the card of a rail, with a GPU of its switch, until its slots are used up; and the constraint
// there gives it cards of different rails.
func TestCardsByRail(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/rdma.md")
	if err != nil {
		t.Fatal(err)
	}
	const selector, constraint = `device.attributes["divvy.dev"].rail == 3`, "{requests: [nic-0, nic-1, nic-2], distinctAttribute: divvy.dev/rail}"
	for _, example := range []string{`selectors: [{cel: {expression: 'device.attributes["divvy.dev"].rail == 3'}}]`, constraint} {
		if !strings.Contains(string(page), example) {
			t.Errorf("docs/rdma.md has no %s", example)
		}
	}
	gpus, cards := recordedCards(t, "a800x8")
	s := with(t, gpus, cards)
	rails := func(devices []string) (found []int64) {
		for _, slice := range s.slices {
			for _, d := range slice.Spec.Devices {
				if _, card := IsNIC(d.Name); card && slices.Contains(devices, d.Name) {
					found = append(found, *d.Attributes[v1alpha1.AttributeRail].IntValue)
				}
			}
		}
		return found
	}
	onRail := pairOf(v1alpha1.ClassNIC)
	onRail.Devices.Requests[1].Exactly.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: selector}}}
	alone := resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: onRail.Devices.Requests[1:]}}
	for i, claim := range []resourcev1.ResourceClaimSpec{onRail, alone} {
		if got := s.take(fmt.Sprint("rail", i), claim); len(got) != len(claim.Devices.Requests) || !slices.Equal(rails(got), []int64{3}) {
			t.Errorf("a claim for rail 3 gets %v", got)
		}
	}
	if got := s.take("more", alone); got != nil {
		t.Errorf("with all slots of rail 3 taken a claim gets %v", got)
	}
	different := resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Constraints: []resourcev1.DeviceConstraint{{
		Requests: []string{"nic-0", "nic-1", "nic-2"}, DistinctAttribute: ptr.To(resourcev1.FullyQualifiedName(v1alpha1.Driver + "/" + v1alpha1.AttributeRail)),
	}}}}
	for _, name := range different.Devices.Constraints[0].Requests {
		one := *pairOf(v1alpha1.ClassNIC).Devices.Requests[1].DeepCopy()
		one.Name = name
		different.Devices.Requests = append(different.Devices.Requests, one)
	}
	got := rails(s.take("different", different))
	slices.Sort(got)
	if len(got) != 3 || len(slices.Compact(got)) != 3 {
		t.Errorf("three cards of different rails are on %v", got)
	}
}
