package dra

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/rdma"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// shelf has cards with the numbers of their nodes by their devices' names.
type shelf struct {
	mu      sync.Mutex
	minors  map[string]uint32
	unread  map[string]uint32 // the numbers as they are, where nobody has looked since
	host    rdma.Host
	openers []facts.Holder
	changed chan struct{}
}

func newShelf() *shelf {
	return &shelf{
		minors: map[string]uint32{"nic-c0-shared": 192, "nic-c1-shared": 193, "nic-v0-vf": 194, "nic-v1-vf": 195}, changed: make(chan struct{}),
		host: rdma.Host{Limits: facts.Yes, Locked: -1, Manager: &rdma.Node{Name: "rdma_cm", Major: 10, Minor: 58}},
	}
}

func (s *shelf) Access(parts []CardPart) (rdma.Access, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var taken []rdma.Part
	for _, p := range parts {
		minor, ok := s.minors[p.Device]
		if !ok {
			return rdma.Access{}, fmt.Errorf("device %s: %w", p.Device, rdma.ErrGone)
		}
		node := &rdma.Node{Name: fmt.Sprint("uverbs", minor-192), Major: 231, Minor: minor}
		taken = append(taken, rdma.Part{Card: rdma.Card{Adapter: rdma.Adapter{Name: strings.Split(p.Device, "-")[1], Verbs: node}}, Slots: p.Slots})
	}
	return s.host.Access(taken, rdma.Limits{Handles: 8, Objects: 100}, "/cover")
}

// functionOf are the functions on which the shelf's cards are: those of v0 and v1 are on the card c1.
var functionOf = map[string][]pci.Address{
	"nic-c0-shared": {{Bus: 1}}, "nic-c1-shared": {{Bus: 2}}, "nic-v0-vf": {{Bus: 2, Function: 1}, {Bus: 2}}, "nic-v1-vf": {{Bus: 2, Function: 2}, {Bus: 2}},
}

func (s *shelf) Functions(parts []CardPart) (all []pci.Address, err error) {
	if _, err := s.Access(parts); err != nil {
		return nil, err
	}
	for _, p := range parts {
		all = append(all, functionOf[p.Device]...)
	}
	return all, nil
}

func (s *shelf) Limited(parts []CardPart) ([]pci.Address, error) {
	return s.Functions(slices.DeleteFunc(slices.Clone(parts), func(p CardPart) bool { return p.Slots == 0 }))
}

func (s *shelf) Openers(parts []CardPart) ([]facts.Holder, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(parts) == 0 || parts[0].Slots > 0 {
		return nil, nil
	}
	return s.openers, nil
}

func (s *shelf) opened(by ...facts.Holder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openers = by
}

func (s *shelf) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *shelf) Refresh(context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unread != nil {
		s.minors, s.unread = s.unread, nil
	}
}

// renumber gives the cards other nodes, 0 for none.
func (s *shelf) renumber(minors map[string]uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.minors = minors
	close(s.changed)
	s.changed = make(chan struct{})
}

// cardResult is a card that the scheduler gave.
func cardResult(request, device, slots string) resourcev1.DeviceRequestAllocationResult {
	r := resourcev1.DeviceRequestAllocationResult{Request: request, Driver: v1alpha1.Driver, Pool: nodeName, Device: device}
	if slots != "" {
		r.ShareID = ptr.To(types.UID("share-" + request))
		r.ConsumedCapacity = map[resourcev1.QualifiedName]resource.Quantity{v1alpha1.CapacitySlots: resource.MustParse(slots)}
	}
	return r
}

// pairs is claim a with a share of a GPU and a card for each of two containers.
func pairs() (*resourcev1.ResourceClaim, *corev1.Pod) {
	pod := podOf("trainer", map[string][]ref{"first": {{"a", "gpu0"}, {"a", "nic0"}}, "second": {{"a", "gpu1"}, {"a", "nic1"}}})
	claim := claimWith(result("gpu0", firstID, "4Gi", "0"), cardResult("nic0", "nic-c0-shared", "1"), result("gpu1", otherID, "4Gi", "0"), cardResult("nic1", "nic-v0-vf", ""))
	reserve(claim, pod)
	return claim, pod
}

// one is claim b with one card alone, for one pod.
func one(device, slots string) (*resourcev1.ResourceClaim, *corev1.Pod) {
	pod := podOf("other", map[string][]ref{"main": {{"b", ""}}})
	claim := claimWith(cardResult("nic", device, slots))
	claim.Name, claim.UID = "b", uidB
	reserve(claim, pod)
	return claim, pod
}

func (m *machine) cardSpec(uid types.UID) string {
	m.t.Helper()
	text, err := os.ReadFile(filepath.Join(m.cdiDir, "nic.divvy.dev-"+string(uid)+".json"))
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return string(text)
}

func newCardMachine(t *testing.T, objects ...any) (*machine, *shelf) {
	m := newMachine(t)
	for _, o := range objects {
		var err error
		switch o := o.(type) {
		case *resourcev1.ResourceClaim:
			err = m.client.Tracker().Add(o)
		case *corev1.Pod:
			err = m.client.Tracker().Add(o)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s := newShelf()
	m.cards = s
	return m, s
}

// Each container gets the node of its own card, beside its share, and the kubelet's second question changes nothing.
func TestCards(t *testing.T) {
	claim, pod := pairs()
	m, _ := newCardMachine(t, claim, pod)
	r := m.start()
	devices := m.mustPrepare(r, claim)
	again := m.mustPrepare(r, claim)
	got := map[string][]string{}
	for _, d := range devices {
		got[d.Requests[0]] = d.CDIDeviceIDs
	}
	for request, want := range map[string]string{
		"nic0": "divvy.dev/nic=" + string(uidA) + ":nic0", "nic1": "divvy.dev/nic=" + string(uidA) + ":nic1", "gpu0": "divvy.dev/share=" + string(uidA) + ":gpu0",
	} {
		if !slices.Equal(got[request], []string{want}) {
			t.Errorf("request %s gets %v, want %s", request, got[request], want)
		}
	}
	if len(devices) != 4 || len(again) != 4 || len(r.agent.Tenancies()) != 2 {
		t.Errorf("%d devices, then %d, %d tenancies", len(devices), len(again), len(r.agent.Tenancies()))
	}
	spec := m.cardSpec(uidA)
	first, second, _ := strings.Cut(spec, `"name": "`+string(uidA)+":nic1")
	for text, parts := range map[string][]string{
		first:  {`"path": "/dev/infiniband/uverbs0"`, `"minor": 192`, `"/dev/infiniband/rdma_cm"`, `"--rdma"`, `"c0 hca_handle=8 hca_object=100"`, `"NCCL_IB_HCA==c0"`},
		second: {`"path": "/dev/infiniband/uverbs2"`, `"minor": 194`, `"/dev/infiniband/rdma_cm"`, `"NCCL_IB_HCA==v0"`},
	} {
		for _, want := range parts {
			if !strings.Contains(text, want) {
				t.Errorf("no %s in\n%s", want, text)
			}
		}
	}
	if strings.Contains(first, "uverbs2") || strings.Contains(second, "uverbs0") || strings.Contains(second, "--rdma") || strings.Contains(spec, "umad") || strings.Contains(spec, "issm") {
		t.Errorf("a container gets more than its own:\n%s", spec)
	}
	for range 2 { // the pod, the claim
		if text := <-m.events.Events; !strings.Contains(text, "Normal CardsAttached c0: uverbs0, shared, at most 8 handles and 100 objects") || !strings.Contains(text, "v0: uverbs2, alone") {
			t.Errorf("event %q", text)
		}
	}
	for range 2 {
		if err := m.unprepare(r, claim); err != nil {
			t.Error(err)
		}
	}
	m.mustBeEmpty(r)
	if _, err := os.Stat(filepath.Join(m.dir, "nics.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record is left: %v", err)
	}
}

// A claim that is prepared gets the node that its adapter has then, though nobody has seen yet that it was numbered anew, and the
// kubelet's second question mends a specification from before.
func TestCardsNumberedAnew(t *testing.T) {
	claim, pod := one("nic-c0-shared", "1")
	m, s := newCardMachine(t, claim, pod)
	r := m.start()
	for _, minor := range []uint32{193, 195} {
		s.unread = map[string]uint32{"nic-c0-shared": minor, "nic-c1-shared": 192}
		m.mustPrepare(r, claim)
		if spec := m.cardSpec(uidB); !strings.Contains(spec, fmt.Sprintf(`"minor": %d`, minor)) || strings.Contains(spec, `"minor": 192`) {
			t.Errorf("with number %d it is\n%s", minor, spec)
		}
	}
}

// A function has one tenant, whoever asks first; the other one is told who.
func TestFunctionHasOneTenant(t *testing.T) {
	claim, pod := pairs()
	second, other := one("nic-v0-vf", "")
	m, _ := newCardMachine(t, claim, pod, second, other)
	r := m.start()
	m.mustPrepare(r, claim)
	if err := m.prepare(r, second).Err; err == nil || !strings.Contains(err.Error(), "device nic-v0-vf is prepared for claim team/a, which has it alone") {
		t.Errorf("%v", err)
	}
	if m.cardSpec(uidB) != "" {
		t.Error("the second claim has a specification")
	}
	if err := m.unprepare(r, claim); err != nil {
		t.Error(err)
	}
	m.mustPrepare(r, second)
}

// A function whose adapter a container still has open is kept back by name, so that its next tenant does not share it. A shared card is not.
func TestOpenFunctionIsKept(t *testing.T) {
	claim, pod := pairs()
	second, other := one("nic-v0-vf", "")
	m, s := newCardMachine(t, claim, pod, second, other)
	r := m.start()
	m.mustPrepare(r, claim)
	s.opened(facts.Holder{PID: 812, Name: "ib_write_bw", Node: "infiniband/uverbs2", Container: "abababababab"})
	for range 2 {
		if err := m.unprepare(r, claim); err == nil || !strings.Contains(err.Error(), "process 812 (ib_write_bw) has /dev/infiniband/uverbs2 in container abababababab") {
			t.Errorf("taken back: %v", err)
		}
	}
	if err := m.prepare(r, second).Err; err == nil || !strings.Contains(err.Error(), "device nic-v0-vf is prepared for claim team/a") {
		t.Errorf("the next claim: %v", err)
	}
	s.opened()
	if err := m.unprepare(r, claim); err != nil {
		t.Error(err)
	}
	m.mustPrepare(r, second)
	third, last := one("nic-c0-shared", "1")
	shared, s := newCardMachine(t, third, last)
	r = shared.start()
	shared.mustPrepare(r, third)
	s.opened(facts.Holder{PID: 812, Name: "ib_write_bw", Node: "infiniband/uverbs0", Container: "abababababab"})
	if err := shared.unprepare(r, third); err != nil {
		t.Errorf("a shared card: %v", err)
	}
}

func TestCardsRefuse(t *testing.T) {
	admin := cardResult("r", "nic-c0-shared", "1")
	admin.AdminAccess = ptr.To(true)
	elsewhere := cardResult("r", "nic-c0-shared", "1")
	elsewhere.Pool = "n2"
	for name, c := range map[string]struct {
		results []resourcev1.DeviceRequestAllocationResult
		change  func(*corev1.Pod)
		fault   string
	}{
		"admin access":    {[]resourcev1.DeviceRequestAllocationResult{admin}, nil, "admin access to an RDMA card"},
		"another node":    {[]resourcev1.DeviceRequestAllocationResult{elsewhere}, nil, "its device is on node n2"},
		"no slots":        {[]resourcev1.DeviceRequestAllocationResult{cardResult("r", "nic-c0-shared", "0")}, nil, "slots 0"},
		"too many slots":  {[]resourcev1.DeviceRequestAllocationResult{cardResult("r", "nic-c0-shared", "1025")}, nil, "slots 1025"},
		"parts of a slot": {[]resourcev1.DeviceRequestAllocationResult{cardResult("r", "nic-c0-shared", "1500m")}, nil, "must be a whole number"},
		"not counted":     {[]resourcev1.DeviceRequestAllocationResult{cardResult("r", "nic-c0-shared", "")}, nil, "DRAConsumableCapacity"},
		"gone":            {[]resourcev1.DeviceRequestAllocationResult{cardResult("r", "nic-c9-shared", "1")}, nil, "the card is not there"},
		"privileged": {[]resourcev1.DeviceRequestAllocationResult{cardResult("r", "nic-c0-shared", "1")}, func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		}, "is privileged"},
		"a kernel of its own": {[]resourcev1.DeviceRequestAllocationResult{cardResult("r", "nic-c0-shared", "1")}, func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To("kata-qemu") }, "runs on a kernel of its own"},
		"with a bad share":    {[]resourcev1.DeviceRequestAllocationResult{cardResult("r", "nic-c0-shared", "1"), result("gpu", firstID, "0", "0")}, nil, "memory must be greater than zero"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podOf("p", map[string][]ref{"main": {{"a", ""}}})
			if c.change != nil {
				c.change(pod)
			}
			claim := claimWith(c.results...)
			reserve(claim, pod)
			m, _ := newCardMachine(t, claim, pod)
			r := m.start()
			if err := m.prepare(r, claim).Err; err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%v, want %q", err, c.fault)
			}
			m.mustBeEmpty(r)
		})
	}
	claim, pod := one("nic-c0-shared", "1")
	m, _ := newCardMachine(t, claim, pod)
	m.cards = nil
	if err := m.prepare(m.start(), claim).Err; err == nil || !strings.Contains(err.Error(), "publishes no cards") {
		t.Errorf("without cards: %v", err)
	}
}

// A container may have a GPU by one claim and a card by another, which is no second share.
func TestCardBesideAnotherClaim(t *testing.T) {
	pod := podOf("p", map[string][]ref{"main": {{"a", ""}, {"b", ""}}})
	share, card := claimWith(result("r", firstID, "4Gi", "0")), claimWith(cardResult("nic", "nic-c0-shared", "2"))
	card.Name, card.UID = "b", uidB
	reserve(share, pod)
	reserve(card, pod)
	m, _ := newCardMachine(t, share, card, pod)
	r := m.start()
	m.mustPrepare(r, share)
	m.mustPrepare(r, card)
	if spec := m.cardSpec(uidB); !strings.Contains(spec, `"c0 hca_handle=16 hca_object=200"`) {
		t.Errorf("two slots:\n%s", spec)
	}
}
