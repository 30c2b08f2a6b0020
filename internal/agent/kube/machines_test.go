package kube

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// ledger has devices in memory, as the agent has them.
type ledger struct {
	mu      sync.Mutex
	all     []claims.Claim
	changed chan struct{}
	given   claims.Given
	stuck   error
	asked   int // how often devices were asked back
	// reserved are functions that containers have.
	reserved []claims.Reserved
	// limited are functions on which containers had limits.
	limited []pci.Address
}

func (l *ledger) TakeDevice(_ context.Context, w claims.Want) (claims.Claim, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !v1alpha1.IsName(w.Name) {
		return claims.Claim{}, errors.New("no such name can be: " + w.Name)
	}
	c := claims.Claim{Want: w, Given: l.given}
	if !slices.ContainsFunc(l.all, func(o claims.Claim) bool { return o.Name == w.Name }) {
		l.all = append(l.all, c)
	}
	return c, nil
}

func (l *ledger) ReleaseDevice(_ context.Context, name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	defer func() { // as the ledger does, whatever came of it
		close(l.changed)
		l.changed = make(chan struct{})
	}()
	if l.stuck != nil {
		return l.stuck
	}
	l.all = slices.DeleteFunc(l.all, func(c claims.Claim) bool { return c.Name == name })
	return claims.ErrUnknown // as where somebody else was faster
}

func (l *ledger) Reserved() []claims.Reserved {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reserved
}

func (l *ledger) Limited() []pci.Address {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limited
}

func (l *ledger) Devices() ([]claims.Claim, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all), l.changed
}

func (l *ledger) names() string {
	var names []string
	for _, c := range l.all {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

const claimUID = types.UID("0bb2a1c8-4b64-4d3a-9a4f-0d4b4a0a3a3e")

func parsed(name string) pool.FunctionID {
	id, ok := pool.ParseFunction(name)
	if !ok {
		panic(name)
	}
	return id
}

// offering has two GPUs and a function of a third one on offer.
func offering(t *testing.T, l *ledger) (*machines, *facts.Host) {
	t.Helper()
	at := func(text string) pci.Address { return parsed("passthrough-" + text).Address }
	host := &facts.Host{Modules: map[string]facts.Module{"vfio_pci": {Loaded: true}}, Devices: []facts.Device{
		{Device: pci.Device{Address: at("0000-3b-00-0"), Class: 0x030200, Vendor: 0x10de, ID: 0x2331, NUMANode: 0}, Group: 8},
		{Device: pci.Device{Address: at("0000-5e-00-0"), Class: 0x030200, Vendor: 0x10de, ID: 0x2235, NUMANode: 1}, Group: 9, VGPU: &facts.VGPU{
			Interface: "mdev", Types: []facts.VGPUType{{ID: "nvidia-471", Name: "NVIDIA A40-8Q", Available: 2}},
		}},
		{Device: pci.Device{Address: at("0000-c1-00-0"), Class: 0x038000, Vendor: 0x1002, ID: 0x74a5}, Group: 10, VFs: 1},
		{Device: pci.Device{Address: at("0000-c1-00-4"), Class: 0x038000, Vendor: 0x1002, ID: 0x74b9, Virtual: true}, Parent: at("0000-c1-00-0"), Group: 11},
	}}
	m := newMachines(l, []agentconfig.Lending{
		{Form: v1alpha1.BackendPassthrough, Address: at("0000-3b-00-0")}, {Form: v1alpha1.BackendVGPU, Address: at("0000-5e-00-0"), Type: "471"},
		{Form: v1alpha1.BackendVF, Address: at("0000-c1-00-0")},
	}, func() (*facts.Host, error) { return host, nil }, slog.New(slog.NewTextHandler(t.Output(), nil)))
	return m, host
}

func (m *machines) lookFor(t *testing.T) string {
	t.Helper()
	if err := m.look(); err != nil {
		t.Fatal(err)
	}
	functions, _ := m.get()
	var names []string
	for _, f := range functions {
		name := f.Name()
		if f.Fault != nil {
			name += "(" + f.Fault.Reason + ")"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// Whatever device a claim has, its name in the ledger is one that the ledger takes, and tells both.
func TestOwnerNames(t *testing.T) {
	for _, device := range []string{
		"passthrough-0000-3b-00-0", "passthrough-10000000-e1-1f-7", "vf-0000-c1-00-4", "vgpu-0000-3b-00-4-471", "vgpu-10000000-5e-00-0-999999-1023",
	} {
		for _, owner := range []string{string(claimUID), slotOwner} {
			name := ownerName(owner, parsed(device))
			got, id, ok := parseOwner(name)
			if !ok || got != owner || id.Name() != device || !v1alpha1.IsName(name) {
				t.Errorf("%s of %s is named %s, which is %s of %s, %v", device, owner, name, id.Name(), got, ok)
			}
		}
	}
	for _, name := range []string{"", "vm1", "a.b", "x.p00003b000t", "functions.0000:3b:00.0", "x.p00003b000n1", "x.f00003b000t471"} {
		if owner, id, ok := parseOwner(name); ok {
			t.Errorf("%q is %s of %s", name, id.Name(), owner)
		}
	}
}

// What a container uses as a network card is offered to no virtual machine meanwhile, and one on which it had limits not before the
// host starts again.
func TestReservedIsNotOffered(t *testing.T) {
	l := &ledger{changed: make(chan struct{})}
	m, host := offering(t, l)
	free := m.lookFor(t)
	l.reserved = []claims.Reserved{{Key: "x", Functions: []pci.Address{host.Devices[3].Address}}}
	if got, want := m.lookFor(t), strings.Replace(free, "vf-0000-c1-00-4", "vf-0000-c1-00-4(used-by-container)", 1); got != want || got == free {
		t.Errorf("offered are %s, want %s", got, want)
	}
	l.reserved, l.limited = nil, l.reserved[0].Functions
	if got, want := m.lookFor(t), strings.Replace(free, "vf-0000-c1-00-4", "vf-0000-c1-00-4(limits-left)", 1); got != want {
		t.Errorf("after its limits offered are %s, want %s", got, want)
	}
}

// A claim gets the nodes that the ledger tells, and attributes by which its virtual machine finds the device.
func TestMachinesGive(t *testing.T) {
	l := &ledger{changed: make(chan struct{}), given: claims.Given{Group: 8, Nodes: []string{"/dev/vfio/8"}}}
	m, _ := offering(t, l)
	m.lookFor(t)
	given, err := m.Give(t.Context(), claimUID, dra.Wanted{FunctionID: parsed("passthrough-0000-3b-00-0"), Claim: "team/a"})
	if err != nil || len(given.Nodes) != 2 || given.Nodes[0].Path != "/dev/vfio/vfio" || given.Nodes[1].Source != "/dev/vfio/8" {
		t.Fatalf("%+v, %v", given, err)
	}
	if at := given.Attributes["resource.kubernetes.io/pciBusID"].StringValue; at == nil || *at != "0000:3b:00.0" || *given.Attributes[v1alpha1.AttributePCIID].StringValue != "10de:2331" || *given.Attributes[v1alpha1.AttributeIOMMUGroup].IntValue != 8 {
		t.Errorf("%+v", given.Attributes)
	}
	l.given = claims.Given{Group: 30, Nodes: []string{"/dev/vfio/30"}, Mediated: "a297db4a-f4c2-11e6-90f6-d3b88d6c9525"}
	given, err = m.Give(t.Context(), claimUID, dra.Wanted{FunctionID: parsed("vgpu-0000-5e-00-0-471-1")})
	if uuid := given.Attributes[v1alpha1.AttributeMdevUUID].StringValue; err != nil || uuid == nil || *uuid != l.given.Mediated {
		t.Errorf("%+v, %v", given, err)
	}
	if _, ok := given.Attributes["resource.kubernetes.io/pciBusID"]; ok {
		t.Error("a mediated device has the address of a PCI function")
	}
	if got, want := l.names(), string(claimUID)+".g00005e000t471n1 "+string(claimUID)+".p00003b000"; got != want {
		t.Errorf("the ledger has %s, want %s", got, want)
	}
	if l.all[1].Form != v1alpha1.BackendVGPU || l.all[1].Type != "471" || l.all[1].UID != 0 || l.all[0].Cluster != "team/a" {
		t.Errorf("wanted was %+v", l.all[1].Want)
	}
	l.all = append(l.all, claims.Claim{Want: claims.Want{Name: "vm1"}})
	if err := m.TakeBack(t.Context(), claimUID); err != nil || l.names() != "vm1" {
		t.Errorf("%v, left is %s", err, l.names())
	}
	for _, odd := range []claims.Given{{}, {Nodes: []string{"/dev/vfio/8", "/dev/sda"}}, {Nodes: []string{"/dev/vfio/../sda"}}, {Nodes: []string{"/dev/vfio/8/../../sda"}}} {
		l.given = odd
		if given, err := m.Give(t.Context(), claimUID, dra.Wanted{FunctionID: parsed("passthrough-0000-3b-00-0")}); err == nil {
			t.Errorf("%+v gives %+v", odd, given)
		}
	}
	l.given = claims.Given{Nodes: []string{"/dev/vfio/8"}}
	if _, err := m.Give(t.Context(), claimUID, dra.Wanted{FunctionID: parsed("vgpu-0000-5e-00-0-471-0")}); err == nil {
		t.Error("a mediated device without a UUID was given")
	}
}

// What is offered follows the ledger: a claim's device stays, one that is claimed otherwise or stuck takes nobody new.
func TestMachinesFollowTheLedger(t *testing.T) {
	l := &ledger{changed: make(chan struct{})}
	m, host := offering(t, l)
	const all = "passthrough-0000-3b-00-0 vgpu-0000-5e-00-0-471-0 vgpu-0000-5e-00-0-471-1 vf-0000-c1-00-4"
	if got := m.lookFor(t); got != all {
		t.Errorf("offered is %s", got)
	}
	l.all = []claims.Claim{{Want: claims.Want{Name: "vm1", Device: parsed("passthrough-0000-5e-00-0").Address, Form: v1alpha1.BackendVGPU}}}
	if got := m.lookFor(t); got != all {
		t.Errorf("beside a vGPU that was claimed by hand: %s", got)
	}
	_, changed := m.get()
	card := parsed("passthrough-0000-3b-00-0").Address
	l.all = []claims.Claim{{Want: claims.Want{Name: "vm1", Device: card}}}
	if got := m.lookFor(t); !strings.HasPrefix(got, "passthrough-0000-3b-00-0(claimed) ") {
		t.Errorf("by hand: %s", got)
	}
	select {
	case <-changed:
	default:
		t.Error("nobody was told")
	}
	l.all = []claims.Claim{{Want: claims.Want{Name: ownerName(string(claimUID), parsed("passthrough-0000-3b-00-0")), Device: card}}}
	host.Devices[0].Driver, host.Devices[0].Override = "vfio-pci", "vfio-pci"
	if got := m.lookFor(t); got != all {
		t.Errorf("of a claim: %s", got)
	}
	l.all[0].Fault = "process 7 holds it"
	if got := m.lookFor(t); !strings.HasPrefix(got, "passthrough-0000-3b-00-0(stuck) ") {
		t.Errorf("stuck: %s", got)
	}
	l.all[0] = claims.Claim{Want: claims.Want{Name: ownerName(slotOwner, parsed("passthrough-0000-3b-00-0")), Device: card}}
	if got := m.lookFor(t); !strings.HasPrefix(got, "passthrough-0000-3b-00-0(claimed) ") {
		t.Errorf("by slots: %s", got)
	}
	l.all = nil
	host.Modules = nil
	if got := m.lookFor(t); !strings.HasPrefix(got, "passthrough-0000-3b-00-0(no-vfio-module) ") {
		t.Errorf("without the module: %s", got)
	}
	m.read = func() (*facts.Host, error) { return nil, errors.New("no /sys") }
	if err := m.look(); err == nil {
		t.Error("a machine that cannot be read has no fault")
	}
	if functions, _ := m.get(); len(functions) != 4 {
		t.Error("what was offered is gone")
	}
}

// Slots keep a device ready, make a vGPU anew for each container, and put back what is offered no more.
func TestMachinesBySlots(t *testing.T) {
	l := &ledger{changed: make(chan struct{}), given: claims.Given{Nodes: []string{"/dev/vfio/11"}}}
	m, _ := offering(t, l)
	m.slots = true
	m.lookFor(t)
	units, _ := m.units()
	resources := map[string]int{}
	for _, u := range units {
		resources[u.Resource]++
	}
	if want := map[string]int{"divvy.dev/passthrough_10de_2331": 1, "divvy.dev/vgpu_471": 2, "divvy.dev/vf_1002_74b9": 1}; !maps.Equal(resources, want) || units[1].NUMANode != 1 {
		t.Errorf("counted are %v, %+v", resources, units)
	}
	for range 2 {
		if given, err := m.giveSlot(t.Context(), "vf-0000-c1-00-4"); err != nil || given.Address != "0000:c1:00.4" || given.UUID != "" || !slices.Equal(given.Nodes, l.given.Nodes) {
			t.Errorf("%+v, %v", given, err)
		}
	}
	l.given.Mediated = "first"
	if given, err := m.giveSlot(t.Context(), "vgpu-0000-5e-00-0-471-0"); err != nil || given.UUID != "first" || given.Address != "" {
		t.Errorf("%+v, %v", given, err)
	}
	l.given.Mediated, l.stuck = "second", claims.ErrOpen
	if _, err := m.giveSlot(t.Context(), "vgpu-0000-5e-00-0-471-0"); !errors.Is(err, claims.ErrOpen) {
		t.Errorf("a vGPU that is open: %v", err)
	}
	l.stuck = nil
	if given, err := m.giveSlot(t.Context(), "vgpu-0000-5e-00-0-471-0"); err != nil || given.UUID != "second" {
		t.Errorf("%+v, %v", given, err)
	}
	if got := l.names(); got != "slot.f0000c1004 slot.g00005e000t471n0" {
		t.Errorf("the ledger has %s", got)
	}
	m.lendings = m.lendings[:2]
	m.lookFor(t)
	m.withdraw(t.Context(), map[string]string{}, true)
	if got := l.names(); got != "slot.g00005e000t471n0" {
		t.Errorf("left is %s", got)
	}
	if _, err := m.giveSlot(t.Context(), "gpu-1"); err == nil {
		t.Error("a device that is none was given")
	}
}

// Where slots are not configured any more, what they had is given back at the start. What a virtual machine has open stays, and is
// asked for again by time alone.
func TestSlotsThatAreLeft(t *testing.T) {
	l := &ledger{changed: make(chan struct{})}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	byHand := claims.Claim{Want: claims.Want{Name: "vm1"}}
	ofClaim := claims.Claim{Want: claims.Want{Name: ownerName(string(claimUID), parsed("passthrough-0000-3b-00-0"))}}
	l.all = []claims.Claim{byHand, ofClaim}
	if leftSlots(l, log) != nil {
		t.Error("devices of others are taken for slots'")
	}
	l.all = append(l.all, claims.Claim{Want: claims.Want{Name: ownerName(slotOwner, parsed("vf-0000-c1-00-4"))}})
	for _, stuck := range []error{claims.ErrOpen, nil} {
		l.stuck, l.asked = stuck, 0
		m := leftSlots(l, log)
		if m == nil {
			t.Fatal("nobody gives back what slots had")
		}
		ctx, cancel := context.WithCancel(t.Context())
		looks := 0
		m.read = func() (*facts.Host, error) {
			if looks++; looks == 2 {
				cancel() // it has seen what it changed itself
			}
			return &facts.Host{}, nil
		}
		m.again = time.Hour
		if err := m.run(ctx); err != nil || l.asked != 1 {
			t.Errorf("%v: asked back %d times, %v", stuck, l.asked, err)
		}
		cancel()
	}
	if want := ofClaim.Name + " vm1"; l.names() != want || leftSlots(l, log) != nil {
		t.Errorf("left is %s, want %s", l.names(), want)
	}
}

// A GPU that the driver has is offered once it has that form, and no share is offered of it then.
func TestOfferedInOneForm(t *testing.T) {
	l := &ledger{changed: make(chan struct{})}
	m, _ := offering(t, l)
	m.lookFor(t)
	p := &publisher{machines: m, gpus: []backend.GPU{{UUID: "GPU-a", PCI: "00000000:3B:00.0"}, {UUID: "GPU-b", PCI: "00000000:C1:00.0"}, {UUID: "GPU-c", PCI: "00000000:01:00.0"}}}
	if got := []string{p.gpuOf(parsed("passthrough-0000-3b-00-0")), p.gpuOf(parsed("vf-0000-c1-00-4")), p.gpuOf(parsed("passthrough-0000-5e-00-0"))}; !slices.Equal(got, []string{"GPU-a", "GPU-b", ""}) {
		t.Errorf("the GPUs are %v", got)
	}
	offered := func(shapes map[string]published) string {
		functions, _ := p.offered(shapes)
		var names []string
		for _, f := range functions {
			names = append(names, f.Name()+string(f.Changing))
		}
		return strings.Join(names, " ")
	}
	const mediated = "vgpu-0000-5e-00-0-471-0 vgpu-0000-5e-00-0-471-1"
	for _, c := range []struct {
		card, functions published
		want            string
	}{
		{published{form: pool.Shared, next: pool.Passthrough}, published{form: pool.Shared, withdrawn: true, next: pool.VF}, mediated},
		{published{form: pool.Passthrough}, published{form: pool.VF}, "passthrough-0000-3b-00-0 " + mediated + " vf-0000-c1-00-4"},
		{published{form: pool.Passthrough, next: pool.Shared}, published{form: pool.VF, withdrawn: true}, "passthrough-0000-3b-00-0shared " + mediated},
	} {
		if got := offered(map[string]published{"GPU-a": c.card, "GPU-b": c.functions}); got != c.want {
			t.Errorf("%+v: %s, want %s", c, got, c.want)
		}
	}
	if !m.has(p.gpus[0]) || m.has(p.gpus[2]) || (*machines)(nil).has(p.gpus[0]) || (*machines)(nil).given() != nil {
		t.Error("which GPUs are offered is not as it should be")
	}
	shaped := shape([]pool.GPU{{UUID: "GPU-a"}, {UUID: "GPU-c"}}, map[string]published{"GPU-a": {form: pool.Passthrough}, "GPU-c": {form: pool.Shared}})
	if len(shaped) != 1 || shaped[0].UUID != "GPU-c" {
		t.Errorf("shares are offered of %+v", shaped)
	}
}
