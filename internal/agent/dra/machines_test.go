package dra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/edits"
)

// host gives devices away as the agent does, in the memory of the test. It outlives agents.
type host struct {
	mu    sync.Mutex
	kept  map[string]Wanted
	fault map[string]error // by the device's name
	stuck error
}

func newHost() *host { return &host{kept: map[string]Wanted{}, fault: map[string]error{}} }

const mdev = "a297db4a-f4c2-11e6-90f6-d3b88d6c9525"

// Give implements [Machines].
func (h *host) Give(_ context.Context, claim types.UID, want Wanted) (Given, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := string(claim) + "." + want.Name()
	if err := h.fault[want.Name()]; err != nil {
		return Given{}, err
	}
	for other, w := range h.kept {
		if w.FunctionID == want.FunctionID && other != name {
			return Given{}, errors.New("it is " + other + "'s")
		}
	}
	h.kept[name] = want
	f := pool.Function{FunctionID: want.FunctionID, Vendor: 0x10de, Product: 0x2331, Group: 40 + int(want.Address.Bus)}
	given := Given{Attributes: f.Attributes(), Nodes: []edits.Device{
		{Path: "/dev/vfio/vfio", Source: "/dev/vfio/vfio", Major: 10, Minor: 196},
		{Path: "/dev/vfio/" + f.Address.String(), Source: "/dev/vfio/" + f.Address.String(), Major: 240, Minor: uint32(want.Address.Bus)},
	}}
	if want.Mediated {
		given.Attributes[v1alpha1.AttributeMdevUUID] = resourcev1.DeviceAttribute{StringValue: ptr.To(mdev)}
	}
	return given, nil
}

// TakeBack implements [Machines]. Who asks must not give up soon, nor wait for ever.
func (h *host) TakeBack(ctx context.Context, claim types.UID) error {
	if _, bounded := ctx.Deadline(); ctx.Err() != nil || !bounded {
		return fmt.Errorf("whoever asks waits with %v", ctx)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stuck != nil {
		return h.stuck
	}
	maps.DeleteFunc(h.kept, func(name string, _ Wanted) bool { return strings.HasPrefix(name, string(claim)) })
	return nil
}

// Kept are who has devices.
func (h *host) Kept() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return sortedKeys(h.kept)
}

const (
	wholeCard   = "passthrough-0000-3b-00-0"
	anotherCard = "passthrough-0000-86-00-0"
	virtualCard = "vf-0000-c1-00-4"
	mediatedOne = "vgpu-0000-5e-00-0-471-2"
)

// machineResult is a device for a virtual machine.
func machineResult(request, device string) resourcev1.DeviceRequestAllocationResult {
	return resourcev1.DeviceRequestAllocationResult{Request: request, Driver: v1alpha1.Driver, Pool: nodeName, Device: device}
}

// launcher is claim a with devices by request, used by one pod.
func launcher(devices ...string) (*resourcev1.ResourceClaim, *corev1.Pod) {
	pod := podOf("virt-launcher", map[string][]ref{"compute": {{"a", ""}}})
	var results []resourcev1.DeviceRequestAllocationResult
	for i := 0; i < len(devices); i += 2 {
		results = append(results, machineResult(devices[i], devices[i+1]))
	}
	claim := claimWith(results...)
	reserve(claim, pod)
	return claim, pod
}

func (m *machine) machineSpec() *specs.Spec {
	m.t.Helper()
	text, err := os.ReadFile(filepath.Join(m.cdiDir, "machine.divvy.dev-"+string(uidA)+".json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var spec specs.Spec
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return &spec
}

// withHost is a machine whose agents offer devices to virtual machines.
func withHost(t *testing.T, claim *resourcev1.ResourceClaim, pod *corev1.Pod) (*machine, *host) {
	t.Helper()
	m, h := newMachine(t, claim, pod), newHost()
	m.machines = h
	return m, h
}

// untouched fails unless nothing is left of a claim with devices.
func (m *machine) untouched(r *running, h *host) {
	m.t.Helper()
	m.mustBeEmpty(r)
	if kept := h.Kept(); len(kept) > 0 || len(r.handed.list()) > 0 {
		m.t.Errorf("%v are kept, and recorded are %+v", kept, r.handed.list())
	}
}

// A container gets the device's nodes and nothing of CUDA: no library, no variable, no share.
func TestMachineGetsNodesAlone(t *testing.T) {
	claim, pod := launcher("gpu-0", wholeCard, "gpu-1", mediatedOne)
	m, h := withHost(t, claim, pod)
	r := m.start()
	devices := m.mustPrepare(r, claim)
	if again := m.mustPrepare(r, claim); !reflect.DeepEqual(again, devices) || len(devices) != 2 {
		t.Errorf("prepared twice: %+v, then %+v", devices, again)
	}
	if want := []string{string(uidA) + "." + wholeCard, string(uidA) + "." + mediatedOne}; !slices.Equal(h.Kept(), want) {
		t.Errorf("%v are kept, want %v", h.Kept(), want)
	}
	if w := h.kept[string(uidA)+"."+mediatedOne]; w.Type != "471" || w.Number != 2 || w.Claim != "team/a" {
		t.Errorf("wanted was %+v", w)
	}
	spec := m.machineSpec()
	if spec.Kind != v1alpha1.CDIMachineKind || len(spec.Devices) != 2 {
		t.Fatalf("%+v", spec)
	}
	for i, d := range spec.Devices {
		if devices[i].CDIDeviceIDs[0] != v1alpha1.CDIMachineKind+"="+d.Name || len(devices[i].CDIDeviceIDs) != 1 || devices[i].ShareID != nil {
			t.Errorf("the kubelet is told of %+v", devices[i])
		}
		bare := specs.ContainerEdits{DeviceNodes: d.ContainerEdits.DeviceNodes}
		if !reflect.DeepEqual(d.ContainerEdits, bare) || len(bare.DeviceNodes) != 2 || bare.DeviceNodes[0].Path != "/dev/vfio/vfio" || !strings.HasPrefix(bare.DeviceNodes[1].Path, "/dev/vfio/0000:") {
			t.Errorf("a container gets %+v", d.ContainerEdits)
		}
	}
	if names := m.specs(); !slices.Equal(names, []string{"machine.divvy.dev-" + string(uidA)}) || len(r.agent.Tenancies()) != 0 {
		t.Errorf("specifications %v, tenancies %v", names, r.agent.Tenancies())
	}
	for range 2 {
		if err := m.unprepare(r, claim); err != nil {
			t.Error(err)
		}
	}
	m.untouched(r, h)
}

// Devices come back also where the kubelet has stopped to wait.
func TestMachineComesBackUnasked(t *testing.T) {
	claim, pod := launcher("gpu", wholeCard)
	m, h := withHost(t, claim, pod)
	r := m.start()
	m.mustPrepare(r, claim)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.unprepareClaim(ctx, claim.UID, nil); err != nil {
		t.Error(err)
	}
	m.untouched(r, h)
}

func TestMachineRefuses(t *testing.T) {
	elsewhere := machineResult("gpu", wholeCard)
	elsewhere.Pool = "n2"
	admin := machineResult("gpu", wholeCard)
	admin.AdminAccess = ptr.To(true)
	for name, c := range map[string]struct {
		results []resourcev1.DeviceRequestAllocationResult
		arrange func(*machine, *host)
		fault   string
	}{
		"two devices by one request":   {results: []resourcev1.DeviceRequestAllocationResult{machineResult("gpu", wholeCard), machineResult("gpu", anotherCard)}, fault: "request gpu: claim cannot be served: it has several devices, and a virtual machine finds one by each request: write a request of count 1 for each"},
		"a device beside a share":      {results: []resourcev1.DeviceRequestAllocationResult{machineResult("gpu", wholeCard), result("gpu", firstID, "4Gi", "0")}, fault: "it has several devices"},
		"another node":                 {results: []resourcev1.DeviceRequestAllocationResult{elsewhere}, fault: "its device is on node n2"},
		"admin access":                 {results: []resourcev1.DeviceRequestAllocationResult{admin}, fault: "does not belong to this driver"},
		"no such node any more":        {arrange: func(m *machine, _ *host) { m.machines = nil }, fault: "this node offers no devices to virtual machines any more"},
		"an old runtime":               {arrange: func(m *machine, _ *host) { m.runtime("containerd://1.7.20") }, fault: "use containerd 2.0 or newer"},
		"a device that somebody holds": {arrange: func(_ *machine, h *host) { h.fault[anotherCard] = errors.New("process 2211 has it") }, fault: "request gpu-1: give " + anotherCard + " to a virtual machine: process 2211 has it"},
	} {
		t.Run(name, func(t *testing.T) {
			claim, pod := launcher("gpu-0", wholeCard, "gpu-1", anotherCard)
			if c.results != nil {
				claim.Status.Allocation.Devices.Results = c.results
			}
			m, h := withHost(t, claim, pod)
			if c.arrange != nil {
				c.arrange(m, h)
			}
			r := m.start()
			if err := m.prepare(r, claim).Err; err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%v, want %q", err, c.fault)
			}
			m.untouched(r, h)
			if text := <-m.events.Events; !strings.Contains(text, "Warning PrepareFailed") {
				t.Errorf("event %q", text)
			}
			if err := m.unprepare(r, claim); err != nil {
				t.Error(err)
			}
		})
	}
}

// A claim may have a share for one container and a device for another. Where the share is refused, the device goes back.
func TestMachineBesideAShare(t *testing.T) {
	pod := podOf("p", map[string][]ref{"compute": {{"a", "gpu"}, {"b", ""}}, "work": {{"a", "r"}}})
	claim := claimWith(machineResult("gpu", wholeCard), result("r", firstID, "4Gi", "30"))
	other := claimWith(machineResult("gpu", virtualCard))
	other.Name, other.UID = "b", uidB
	reserve(claim, pod)
	reserve(other, pod)
	m, h := withHost(t, claim, pod)
	if err := m.client.Tracker().Add(other); err != nil {
		t.Fatal(err)
	}
	r := m.start()
	if devices := m.mustPrepare(r, claim); len(devices) != 2 {
		t.Errorf("%+v", devices)
	}
	m.mustPrepare(r, other)
	if first, _ := m.held(r); first != 4*gib || len(h.Kept()) != 2 {
		t.Errorf("%d bytes are held, and %v", first, h.Kept())
	}
	for _, c := range []*resourcev1.ResourceClaim{other, claim} {
		if err := m.unprepare(r, c); err != nil {
			t.Error(err)
		}
	}
	m.untouched(r, h)
	claim.Status.Allocation.Devices.Results[1] = result("r", firstID, "17Gi", "0")
	if err := m.prepare(r, claim).Err; err == nil {
		t.Error("a share of more than the GPU has was prepared")
	}
	m.untouched(r, h)
}

// An agent that dies at any step leaves what the next one needs, and a device that cannot be taken back stays known.
func TestCrashOverMachines(t *testing.T) {
	for _, step := range []string{"hand-recorded", "hand-given", "hand-spec", "hand-back"} {
		for _, again := range []bool{true, false} {
			t.Run(step, func(t *testing.T) {
				claim, pod := launcher("gpu-0", wholeCard, "gpu-1", mediatedOne)
				m, h := withHost(t, claim, pod)
				if !m.crashing(step, 1, func(r *running) {
					m.prepare(r, claim)
					_ = m.unprepare(r, claim)
				}) {
					t.Fatal("there is no such step")
				}
				r := m.start()
				newReconciler(r.driver).machineSpecifications(t.Context())
				if again {
					if m.mustPrepare(r, claim); len(h.Kept()) != 2 || m.machineSpec() == nil {
						t.Errorf("%v are kept", h.Kept())
					}
				}
				h.stuck = errors.New("it is stuck")
				if err := m.unprepare(r, claim); len(h.Kept()) > 0 && (err == nil || !strings.Contains(err.Error(), "take back devices of virtual machines: it is stuck")) {
					t.Errorf("%v", err)
				}
				h.stuck = nil
				if err := m.unprepare(r, claim); err != nil {
					t.Error(err)
				}
				m.untouched(r, h)
			})
		}
	}
}

// What one agent gave the next one knows: it writes a lost specification again, and takes it back, also without its record.
func TestMachinesOutliveTheAgent(t *testing.T) {
	claim, pod := launcher("gpu", wholeCard)
	m, h := withHost(t, claim, pod)
	r := m.start()
	m.mustPrepare(r, claim)
	before := m.machineSpec()
	r.stop()
	if err := os.RemoveAll(m.cdiDir); err != nil {
		t.Fatal(err)
	}
	r = m.start()
	rec := newReconciler(r.driver)
	rec.machineSpecifications(t.Context())
	if after := m.machineSpec(); !reflect.DeepEqual(after, before) {
		t.Errorf("%+v became %+v", before, after)
	}
	stray := filepath.Join(m.cdiDir, "machine.divvy.dev-"+string(uidB)+".json")
	if err := os.WriteFile(stray, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	rec.machineSpecifications(t.Context())
	if _, err := os.Stat(stray); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a specification without a claim is left: %v", err)
	}
	r.stop()
	if err := os.WriteFile(filepath.Join(m.dir, "machine-claims.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	damaged, err := newRecords[handed](filepath.Join(m.dir, "machine-claims.json"), "machine-claims")
	if err == nil || len(damaged.list()) != 0 {
		t.Errorf("a damaged record is %v, %v", damaged.list(), err)
	}
	r = m.start()
	if err := m.unprepare(r, claim); err != nil {
		t.Error(err)
	}
	m.untouched(r, h)
}

// The device of a claim that is gone, and that the kubelet has forgotten, is taken back.
func TestForgottenMachines(t *testing.T) {
	claim, pod := launcher("gpu", wholeCard)
	m, h := withHost(t, claim, pod)
	r := m.start()
	m.mustPrepare(r, claim)
	m.forget(r, pod, func() bool { return len(h.Kept()) == 1 })
	m.untouched(r, h)
}
