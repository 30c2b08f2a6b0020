package cli

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/preflight"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// What Divvy gave to virtual machines is asked of the agent, once, and of no agent where a recording is looked at.
func TestPreflightAsksTheAgent(t *testing.T) {
	whole, vgpu := deviceClaim("train", v1alpha1.BackendPassthrough, ""), deviceClaim("desk", v1alpha1.BackendVGPU, "nvidia-471")
	vgpu.Mediated, vgpu.Cluster = "11111111-2222-3333-4444-000000000001", "team/desk"
	at := whole.Device
	l := succession(t, deeds{control.MethodDevices: func() (any, error) {
		return control.Devices{Claims: []control.DeviceClaim{whole, vgpu}, Functions: []control.Functions{{Device: at, Count: 4}}}, nil
	}, control.MethodList: func() (any, error) {
		share := []control.Share{{UUID: "GPU-0"}}
		return control.Listing{Tenants: []control.Tenant{{Name: "train", Shares: share}, {Name: "eval", Shares: share}}}, nil
	}})
	want := preflight.Own{Agent: true, Shares: map[string][]string{"GPU-0": {"train", "eval"}}, Functions: []pci.Address{at}, Claims: []preflight.Claim{
		{Name: "train", Form: "passthrough", Device: at, Members: []pci.Address{at}},
		{Name: "desk", Form: "vgpu", Device: at, Members: []pci.Address{at}, Mediated: vgpu.Mediated, Cluster: true},
	}}
	a := &app{rundir: rundir.Path(), out: io.Discard, err: io.Discard}
	got := a.own(t.Context())
	if !slices.Contains(got.Processes, os.Getpid()) { // the agent is this process
		t.Errorf("the agent's processes are %v, without %d", got.Processes, os.Getpid())
	}
	got.Processes = nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	l.call("vm", "preflight", "--for", "qemu", "--host", filepath.Join(hosts, "vm", "a100.host"))
	if asked := l.of(control.MethodDevices); len(asked) != 1 {
		t.Errorf("for a recording the agent was asked %q", asked[1:])
	}
	l.call("vm", "preflight", "--for", "qemu")
	if asked := l.of(control.MethodDevices); len(asked) != 2 {
		t.Errorf("for this machine the agent was asked %q", asked[1:])
	}
}

// An agent that does not tell leaves it unknown.
func TestPreflightOfAnAgentThatDoesNotTell(t *testing.T) {
	devices := func() (any, error) {
		return control.Devices{Claims: []control.DeviceClaim{deviceClaim("train", v1alpha1.BackendPassthrough, "")}}, nil
	}
	fails := func() (any, error) { return nil, errors.New("no way") }
	for told, do := range []deeds{{control.MethodDevices: fails, control.MethodList: fails}, {control.MethodDevices: devices, control.MethodList: fails}} {
		succession(t, do)
		a := &app{rundir: rundir.Path(), out: io.Discard, err: io.Discard}
		if got := a.own(t.Context()); !strings.Contains(got.Unknown, "no way") || len(got.Claims) != told {
			t.Errorf("%+v, want %d claims", got, told)
		}
	}
}

// Where the agent cannot read its book the list may lack something: the command fails, and preflight does not take the list for all.
func TestListOfADamagedBook(t *testing.T) {
	for _, all := range []control.Devices{{}, {Claims: []control.DeviceClaim{deviceClaim("train", v1alpha1.BackendPassthrough, "")}}} {
		all.Unread = "the book is damaged"
		l := succession(t, deeds{control.MethodDevices: func() (any, error) { return all, nil }, control.MethodList: func() (any, error) { return control.Listing{}, nil }})
		status, said := l.call("vm", "ls")
		if status != program.ExitFailure || !strings.Contains(said, "divvy: this list is not whole: the book is damaged\n") || strings.Contains(said, "No virtual machine") || strings.Contains(said, "train") != (len(all.Claims) > 0) {
			t.Errorf("status %d, %s", status, said)
		}
		if status, said := l.call("vm", "ls", "-o", "json"); status != program.ExitFailure || !strings.Contains(said, `"unread": "the book is damaged"`) {
			t.Errorf("status %d, %s", status, said)
		}
		a := &app{rundir: rundir.Path(), out: io.Discard, err: io.Discard}
		if got := a.own(t.Context()); got.Unknown != all.Unread || len(got.Claims) != len(all.Claims) {
			t.Errorf("preflight has %+v", got)
		}
	}
}

// While no agent answers its books tell. One that cannot be read is no empty one, and the report says so.
func TestPreflightReadsTheBooks(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(rundir.Variable, dir)
	a := &app{rundir: rundir.Path(), out: io.Discard, err: io.Discard}
	if got := a.own(t.Context()); !reflect.DeepEqual(got, preflight.Own{}) {
		t.Errorf("without books: %+v", got)
	}
	at := pci.Address{Bus: 0x3d}
	vf := pci.Address{Bus: 0x3d, Function: 4}
	entries := []vfio.Entry{
		{Owner: "train", Phase: vfio.Bound, Plan: binding.Plan{Form: binding.FormPassthrough, Device: at, Members: []pci.Address{at}}},
		{Owner: "pod", Phase: vfio.Bound, Plan: binding.Plan{Form: binding.FormVGPU, Device: vf, Members: []pci.Address{vf}, VGPU: &binding.VGPU{Type: "471", UUID: "u"}}},
		{Owner: "functions", Phase: vfio.Bound, Plan: binding.Plan{Form: binding.FormFunctions, Device: at}},
	}
	path := filepath.Join(dir, vfio.FileName)
	held := claims.Claim{Want: claims.Want{Name: "pod", Form: v1alpha1.BackendVGPU, Device: at, Cluster: "team/pod"}, Times: claims.Times{Phase: claims.Held}}
	if err := errors.Join(checkpoint.NewFile[[]vfio.Entry](path, "vfio", 1).Save(entries), checkpoint.NewFile[map[string]any](filepath.Join(dir, claims.FileName), "claims", 2).Save(map[string]any{"claims": []claims.Claim{held}})); err != nil {
		t.Fatal(err)
	}
	want := preflight.Own{Functions: []pci.Address{at}, Claims: []preflight.Claim{
		{Name: "train", Form: "passthrough", Device: at, Members: []pci.Address{at}},
		{Name: "pod", Form: "vgpu", Device: vf, Members: []pci.Address{vf}, Mediated: "u", Cluster: true},
	}}
	if got := a.own(t.Context()); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	Main([]string{"vm", "preflight", "--for", "qemu", "-o", "json"}, &out, io.Discard)
	var report preflight.Report
	if err := json.Unmarshal([]byte(out.String()), &report); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(report.Findings, func(f preflight.Finding) bool {
		return f.ID == "unseen" && f.Status == preflight.Unknown && strings.Contains(f.Evidence, path)
	}) {
		t.Errorf("of a damaged book: %s", out.String())
	}
}
