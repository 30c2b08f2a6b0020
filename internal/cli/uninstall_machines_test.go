package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// Divvy is not removed while an agent that answers has given devices.
func TestNotRemovableWhileAnAgentLendsDevices(t *testing.T) {
	at := pci.Address{Bus: 0xc1}
	claim := control.DeviceClaim{}
	claim.Name, claim.Device = "q0.1", at
	l := succession(t, deeds{
		control.MethodList: func() (any, error) { return control.Listing{}, nil },
		control.MethodDevices: func() (any, error) {
			return control.Devices{Claims: []control.DeviceClaim{claim}, Functions: []control.Functions{{Device: at, Count: 4}}}, nil
		},
	})
	status, said := l.call("agent", "--check-uninstall")
	const want = "1 claim has a device for a virtual machine (q0.1): end them with `divvy vm release q0.1`, as root; " +
		"virtual functions are enabled (of 0000:c1:00.0): take them away with `divvy vm functions 0000:c1:00.0 --count 0`, as root; then remove Divvy again"
	if status != 1 || !strings.Contains(said, want) {
		t.Errorf("status %d, %s, want %s", status, said, want)
	}
}

// Divvy is not removed while devices are given that an agent left which is gone, or while nobody knows.
func TestNotRemovableWhileDevicesAreLeft(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the system agent's run directory can be moved for root alone")
	}
	dir := t.TempDir()
	t.Setenv(rundir.Variable, dir)
	l := &line{dir: dir}
	if status, said := l.call("agent", "--check-uninstall"); status != 0 || said != "" {
		t.Fatalf("without a book: status %d, %s", status, said)
	}
	path, gpu := filepath.Join(dir, vfio.FileName), pci.Address{Bus: 0xc1}
	err := checkpoint.NewFile[[]vfio.Entry](path, "vfio", 1).Save([]vfio.Entry{
		{Owner: "train", Phase: vfio.Bound, Plan: binding.Plan{Form: binding.FormPassthrough, Device: pci.Address{Bus: 0x3d}}},
		{Owner: "desk", Phase: vfio.Returning, Plan: binding.Plan{Form: binding.FormVGPU, Device: gpu, VGPU: &binding.VGPU{Type: "471"}}},
		{Owner: "functions", Phase: vfio.Bound, Plan: binding.Plan{Form: binding.FormFunctions, Device: gpu}},
	})
	if err == nil {
		err = checkpoint.NewFile[map[string]any](filepath.Join(dir, "claims.json"), "claims", 2).Save(map[string]any{"claims": []map[string]any{
			{"name": "alone", "cluster": "lab/vm", "uid": 0, "form": "vf", "device": "0000:5e:00.4", "group": 3, "since": "2026-01-01T00:00:00Z", "phase": "taking"},
		}})
	}
	if err != nil {
		t.Fatal(err)
	}
	const want = "3 claims have devices for virtual machines (alone, desk, train): end them with `divvy vm release desk`, as root, a cluster's (lab/vm) ends with its pod; " +
		"virtual functions are enabled (of 0000:c1:00.0): take them away with `divvy vm functions 0000:c1:00.0 --count 0`, as root; the agent has to run for that; then remove Divvy again"
	if status, said := l.call("agent", "--check-uninstall"); status != 1 || !strings.Contains(said, want) {
		t.Errorf("status %d, %s, want %s", status, said, want)
	}
	for _, name := range []string{filepath.Join(dir, "claims.json"), path} {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	ledger, err := claims.Open(claims.Config{Path: filepath.Join(dir, claims.FileName)})
	if err == nil {
		err = ledger.Reserve(claims.Reserved{Key: "u-1", Name: "lab/train-nic", Functions: []pci.Address{gpu}})
	}
	if err != nil {
		t.Fatal(err)
	}
	const reserved = "containers use cards by claims of the cluster (lab/train-nic): they end with their pods; the agent has to run for that; then remove Divvy again"
	if status, said := l.call("agent", "--check-uninstall"); status != 1 || !strings.Contains(said, reserved) {
		t.Errorf("status %d, %s, want %s", status, said, reserved)
	}
	if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, said := l.call("agent", "--check-uninstall"); status != 1 || !strings.Contains(said, "which devices virtual machines have is not known") {
		t.Errorf("a damaged book: status %d, %s", status, said)
	}
}

// Shares and devices are told in one line, each where there are some.
func TestSharesAndDevicesInOneLine(t *testing.T) {
	one, other := errors.New("a"), errors.New("b")
	if inOneLine(nil, nil) != nil {
		t.Error("nothing is an error")
	}
	for want, got := range map[string]error{"a": inOneLine(one, nil), "b": inOneLine(nil, other), "a; b": inOneLine(one, other)} {
		if got == nil || got.Error() != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
}
