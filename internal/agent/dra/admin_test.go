package dra

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// adminResult is admin access to a GPU.
func adminResult(request, uuid string) resourcev1.DeviceRequestAllocationResult {
	r := result(request, uuid, "0", "0")
	r.AdminAccess = ptr.To(true)
	r.ConsumedCapacity[v1alpha1.CapacitySlots] = resource.MustParse("0")
	return r
}

// monitoring is claim a with admin access to both GPUs, used by one pod.
func monitoring() (*resourcev1.ResourceClaim, *corev1.Pod) {
	pod := podOf("exporter", map[string][]ref{"main": {{"a", ""}}})
	claim := claimWith(adminResult("all", firstID), adminResult("all", otherID))
	reserve(claim, pod)
	return claim, pod
}

// wholeGPU is claim b with all of the first GPU, used by one pod.
func wholeGPU() (*resourcev1.ResourceClaim, *corev1.Pod) {
	pod := podOf("trainer", map[string][]ref{"main": {{"b", ""}}})
	claim := claimWith(wholeResult("r", firstID))
	claim.Name, claim.UID = "b", uidB
	reserve(claim, pod)
	return claim, pod
}

func (m *machine) adminSpec() string {
	m.t.Helper()
	text, err := os.ReadFile(filepath.Join(m.cdiDir, "admin.divvy.dev-"+string(uidA)+".json"))
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return string(text)
}

// open are the claims that the listing names for each GPU.
func (m *machine) open(r *running) [][]string {
	m.t.Helper()
	l, err := r.agent.Listing(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	return [][]string{l.GPUs[0].Open, l.GPUs[1].Open}
}

// Admin access is given beside a whole GPU, whichever comes first, takes nothing, and is said on pod, claim and list.
func TestAdminAccess(t *testing.T) {
	claim, pod := monitoring()
	taken, trainer := wholeGPU()
	m := newMachine(t, claim, pod, taken, trainer)
	r := m.start()
	m.mustPrepare(r, taken)
	first, other := m.held(r)
	devices := m.mustPrepare(r, claim)
	if again := m.mustPrepare(r, claim); !reflect.DeepEqual(again, devices) || len(devices) != 2 {
		t.Errorf("prepared twice: %+v, then %+v", devices, again)
	}
	for _, d := range devices {
		if want := []string{"divvy.dev/admin=" + string(uidA) + ":all"}; !slices.Equal(d.CDIDeviceIDs, want) || !slices.Equal(d.Requests, []string{"all"}) || d.ShareID == nil {
			t.Errorf("%+v, want device %v", d, want)
		}
	}
	spec := m.adminSpec()
	for _, want := range []string{`"kind": "divvy.dev/admin"`, `"OPEN0=` + firstID, `"OPEN1=` + otherID} {
		if !strings.Contains(spec, want) {
			t.Errorf("no %s in %s", want, spec)
		}
	}
	if a, b := m.held(r); a != first || b != other || len(r.agent.Tenancies()) != 1 {
		t.Errorf("the ledger has %d and %d bytes, had %d and %d", a, b, first, other)
	}
	if open := m.open(r); !reflect.DeepEqual(open, [][]string{{"team/a"}, {"team/a"}}) {
		t.Errorf("open are %v", open)
	}
	for range 2 { // the pod, the claim
		if text := <-m.events.Events; !strings.Contains(text, "Normal AdminAccess admin access to "+firstID+", "+otherID) {
			t.Errorf("event %q", text)
		}
	}
	if err := m.unprepare(r, taken); err != nil {
		t.Error(err)
	}
	m.mustPrepare(r, taken) // while the GPU is open
	for _, c := range []*resourcev1.ResourceClaim{taken, claim, claim} {
		if err := m.unprepare(r, c); err != nil {
			t.Error(err)
		}
	}
	m.mustBeEmpty(r)
	if open := m.open(r); open[0] != nil || open[1] != nil {
		t.Errorf("open are %v", open)
	}
	if _, err := os.Stat(filepath.Join(m.dir, "admin-access.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record is left: %v", err)
	}
}

// What one agent opened the next one knows: it lists it, writes a lost specification again, and takes it back.
func TestAdminAccessOutlivesTheAgent(t *testing.T) {
	claim, pod := monitoring()
	m := newMachine(t, claim, pod)
	r := m.start()
	m.mustPrepare(r, claim)
	before := m.adminSpec()
	r.stop()
	if err := os.RemoveAll(m.cdiDir); err != nil {
		t.Fatal(err)
	}
	r = m.start()
	newReconciler(r.driver).adminSpecifications(t.Context())
	if after := m.adminSpec(); after != before {
		t.Errorf("%s became %s", before, after)
	}
	if open := m.open(r); !reflect.DeepEqual(open, [][]string{{"team/a"}, {"team/a"}}) {
		t.Errorf("open are %v", open)
	}
	stray := filepath.Join(m.cdiDir, "admin.divvy.dev-"+string(uidB)+".json")
	if err := os.WriteFile(stray, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	newReconciler(r.driver).adminSpecifications(t.Context())
	if _, err := os.Stat(stray); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a specification without a claim is left: %v", err)
	}
	if err := m.unprepare(r, claim); err != nil {
		t.Error(err)
	}
	m.mustBeEmpty(r)
}

// Admin access of a claim that is gone, and that the kubelet has forgotten, is taken back.
func TestForgottenAdminAccess(t *testing.T) {
	claim, pod := monitoring()
	m := newMachine(t, claim, pod)
	r := m.start()
	m.mustPrepare(r, claim)
	m.forget(r, pod, func() bool { return m.adminSpec() != "" })
	m.mustBeEmpty(r)
}

// A claim can have a share for one container and admin access for another, which may be privileged.
func TestAdminAccessBesideAShare(t *testing.T) {
	pod := podOf("p", map[string][]ref{"exporter": {{"a", "all"}}, "work": {{"a", "r"}}})
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	claim := claimWith(adminResult("all", firstID), result("r", firstID, "4Gi", "30"))
	reserve(claim, pod)
	m := newMachine(t, claim, pod)
	r := m.start()
	if devices := m.mustPrepare(r, claim); len(devices) != 2 || !slices.Equal(m.specs(), []string{"admin.divvy.dev-" + string(uidA), "divvy.dev-" + string(uidA)}) {
		t.Errorf("%+v, specifications %v", devices, m.specs())
	}
	if first, _ := m.held(r); first != 4*gib {
		t.Errorf("%d bytes are held", first)
	}
	if err := m.unprepare(r, claim); err != nil {
		t.Error(err)
	}
	m.mustBeEmpty(r)
}

func TestAdminAccessRefuses(t *testing.T) {
	claimB := claimWith(adminResult("r", otherID))
	claimB.Name, claimB.UID = "b", uidB
	asking := func(c *resourcev1.ResourceClaim, memory string) *resourcev1.ResourceClaim {
		c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "all", Exactly: &resourcev1.ExactDeviceRequest{
			Capacity: &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{v1alpha1.CapacityMemory: resource.MustParse(memory)}},
		}}}
		return c
	}
	elsewhere := adminResult("all", firstID)
	elsewhere.Pool = "n2"
	for name, c := range map[string]struct {
		claim *resourcev1.ResourceClaim
		uses  []ref
		fault string
	}{
		"an amount":             {asking(claimWith(adminResult("all", firstID)), "4Gi"), nil, "request all: claim cannot be served: admin access takes nothing of a GPU and has no limit: leave out memory 4Gi"},
		"a configuration":       {withConfig(claimWith(adminResult("all", firstID)), configured(fromClaim, `,"weight":2`, "all")), nil, "a configuration is for shares: leave out the configuration"},
		"another node":          {claimWith(elsewhere), nil, "its device is on node n2"},
		"GPUs that vanished":    {claimWith(adminResult("all", "GPU-00000000-0000-4000-8000-00000000dead")), nil, "is on this machine"},
		"one container, one":    {claimWith(adminResult("all", firstID), result("r", firstID, "4Gi", "30")), nil, "container main of pod p names a share and admin access"},
		"one container, two":    {claimWith(result("r", firstID, "4Gi", "30")), []ref{{"a", ""}, {"b", ""}}, "a share by claim a and admin access by claim b"},
		"its own kind of share": {claimWith(adminResult("all", firstID), result("r", firstID, "0", "30")), []ref{{"a", "r"}}, "memory must be greater than zero"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.uses == nil {
				c.uses = []ref{{"a", ""}}
			}
			pod := podOf("p", map[string][]ref{"main": c.uses})
			reserve(c.claim, pod)
			m := newMachine(t, c.claim, claimB, pod)
			r := m.start()
			if err := m.prepare(r, c.claim).Err; err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%v, want %q", err, c.fault)
			}
			m.mustBeEmpty(r)
			if text := <-m.events.Events; !strings.Contains(text, "Warning PrepareFailed") {
				t.Errorf("event %q", text)
			}
		})
	}
	// What the class says is for the shares of it, and amounts of nothing are what the webhook writes.
	claim := withConfig(asking(claimWith(adminResult("all", firstID)), "0"), configured(fromClass, `,"weight":2`))
	m := newMachine(t, claim)
	m.mustPrepare(m.start(), claim)
}

// An agent that dies over admin access leaves what the next one needs.
func TestCrashOverAdminAccess(t *testing.T) {
	claim, pod := monitoring()
	m := newMachine(t, claim, pod)
	if !m.crashing("open-recorded", 1, func(r *running) { m.prepare(r, claim) }) {
		t.Fatal("there is no such step")
	}
	r := m.start()
	newReconciler(r.driver).adminSpecifications(t.Context())
	m.mustPrepare(r, claim)
	if err := m.unprepare(r, claim); err != nil {
		t.Error(err)
	}
	m.mustBeEmpty(r)
}

// Admin access that cannot be given leaves nothing, and what cannot be read keeps nobody out.
func TestAdminAccessThatFails(t *testing.T) {
	claim, pod := monitoring()
	m := newMachine(t, claim, pod)
	r := m.start()
	m.backend.fail = errors.New("no driver here")
	if err := m.prepare(r, claim).Err; err == nil || !strings.Contains(err.Error(), "give team/a admin access: no driver here") {
		t.Errorf("%v", err)
	}
	m.mustBeEmpty(r)
	m.backend.fail = nil
	m.mustPrepare(r, claim)
	// One that cannot be read is set aside, and the kubelet's next question makes it anew.
	record := filepath.Join(m.dir, "admin-access.json")
	if err := os.WriteFile(record, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if o, err := newRecords[opened](record, "admin-access"); err == nil || len(o.list()) != 0 {
		t.Errorf("a damaged record is %v, %v", o.list(), err)
	}
	if _, err := os.Stat(record + ".unreadable"); err != nil {
		t.Error(err)
	}
}
