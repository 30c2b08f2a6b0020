package cli

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// Devices that an agent gave to virtual machines are told while none answers, with the driver that they have and had.
func TestDoctorOfDevicesThatAreLeft(t *testing.T) {
	dir, root := t.TempDir(), t.TempDir()
	if checks := deviceChecks(dir, root, false); len(checks) != 0 {
		t.Errorf("without a book: %+v", checks)
	}
	gpu, audio, function := pci.Address{Bus: 0x3d}, pci.Address{Bus: 0x3d, Function: 1}, pci.Address{Bus: 0x5e, Function: 4}
	folder := filepath.Join(root, "sys", binding.DeviceFolder(gpu))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../../bus/pci/drivers/vfio-pci", filepath.Join(folder, "driver")); err != nil {
		t.Fatal(err)
	}
	entries := []vfio.Entry{
		{Owner: "train", Phase: vfio.Bound, Begun: 3, Plan: binding.Plan{Form: binding.FormPassthrough, Device: gpu, Steps: []binding.Step{
			{Kind: binding.Unbind, Device: gpu, Before: "nvidia"},
			{Kind: binding.Probe, Device: gpu, State: binding.State{Path: binding.DeviceFolder(gpu) + "/driver", Link: true}, After: binding.Driver, Undo: binding.Write{Path: "undone"}},
			{Kind: binding.Probe, Device: audio},
		}}},
		{Owner: "desk", Phase: vfio.Bound, Plan: binding.Plan{Form: binding.FormVGPU, Device: function, VGPU: &binding.VGPU{Type: "471"}}},
	}
	path := filepath.Join(dir, vfio.FileName)
	if err := checkpoint.NewFile[[]vfio.Entry](path, "vfio", 1).Save(entries); err != nil {
		t.Fatal(err)
	}
	if checks := deviceChecks(dir, root, true); len(checks) != 0 {
		t.Errorf("while an agent answers: %+v", checks)
	}
	checks := deviceChecks(dir, root, false)
	if len(checks) != 1 || checks[0].ID != "vm.left" || checks[0].Status != doctor.Warn || !slices.Contains(checks[0].Commands, "echo >/sys/undone &&") {
		t.Fatalf("%+v", checks)
	}
	for _, want := range []string{
		"claim train: 0000:3d:00.0 is on vfio-pci and was on nvidia before, 0000:3d:00.1 is without a driver and had no driver before; ",
		"claim desk: a vGPU of type 471 on 0000:5e:00.4",
	} {
		if strings.Count(checks[0].Found, want) != 1 {
			t.Errorf("%q does not tell %q once", checks[0].Found, want)
		}
	}
}

// The ledger tells on which functions containers had limits, and one that is not there or damaged tells none.
func TestDoctorReadsWhereContainersHadLimits(t *testing.T) {
	path, card := filepath.Join(t.TempDir(), claims.FileName), pci.Address{Bus: 0x3d}
	limited := func() []pci.Address { return limitedIn(filepath.Dir(path)) }
	if got := limited(); len(got) > 0 {
		t.Errorf("without a ledger: %v", got)
	}
	ledger, err := claims.Open(claims.Config{Path: path})
	if err == nil {
		err = errors.Join(ledger.Reserve(claims.Reserved{Key: "x", Functions: []pci.Address{card}, Limited: []pci.Address{card}}), ledger.Unreserve("x"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := limited(); !slices.Equal(got, []pci.Address{card}) {
		t.Errorf("limited are %v", got)
	}
	if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := limited(); len(got) > 0 {
		t.Errorf("of a damaged ledger: %v", got)
	}
}

// A book that cannot be read is told, to root, whether or not an agent answers.
func TestDoctorOfADamagedBookOfDevices(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root's book is told as damaged")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, vfio.FileName)
	if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, served := range []bool{false, true} {
		checks := deviceChecks(dir, "/", served)
		if len(checks) != 1 || checks[0].ID != "vm.book" || checks[0].Status != doctor.Warn || !strings.Contains(checks[0].Found, path) || checks[0].Next == "" {
			t.Fatalf("served %t: %+v", served, checks)
		}
		if lines := checks[0].Commands; len(lines) != 1 || !strings.HasPrefix(lines[0], "rm -rf "+path+" "+filepath.Join(dir, "vfio-receipts")+" && echo ") {
			t.Errorf("where nothing is known to be given, the lines are %q", checks[0].Commands)
		}
	}
}

// A ledger that was set aside is told until its file is removed.
func TestDoctorOfALedgerSetAside(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, claims.FileName)
	if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if checks := ledgerChecks(dir); len(checks) != 0 {
		t.Errorf("before: %+v", checks)
	}
	aside, err := checkpoint.NewFile[struct{}](path, "", 0).SetAside()
	if err != nil {
		t.Fatal(err)
	}
	if checks := ledgerChecks(dir); len(checks) != 1 || checks[0].ID != "vm.ledger" || checks[0].Status != doctor.Warn || !strings.Contains(checks[0].Found, aside) || checks[0].Next == "" {
		t.Errorf("set aside: %+v", checks)
	}
}

// A ledger that was removed while the book has devices is told, with the names that have them, until each is a claim's.
func TestDoctorOfARemovedLedger(t *testing.T) {
	dir, card := t.TempDir(), pci.Address{Bus: 0x3d}
	err := checkpoint.NewFile[[]vfio.Entry](filepath.Join(dir, vfio.FileName), "vfio", 1).Save([]vfio.Entry{
		{Owner: "train", Phase: vfio.Bound, Plan: binding.Plan{Form: binding.FormPassthrough, Device: card}},
		{Owner: "functions.0000:3d:00.0", Phase: vfio.Bound, Plan: binding.Plan{Form: binding.FormFunctions, Device: card}},
	})
	if err != nil {
		t.Fatal(err)
	}
	checks := ledgerChecks(dir)
	if len(checks) != 1 || checks[0].ID != "vm.ledger" || checks[0].Status != doctor.Warn || !strings.HasSuffix(checks[0].Found, "was removed: 0000:3d:00.0 (train)") {
		t.Errorf("removed: %+v", checks)
	}
	g := givenHost{dir: dir}
	if err := g.claim(t.Context(), "train", v1alpha1.BackendPassthrough, binding.Plan{Device: card}); err != nil {
		t.Fatal(err)
	}
	if checks := ledgerChecks(dir); len(checks) != 0 {
		t.Errorf("of a claim: %+v", checks)
	}
}

// A node that is given back by hand permits nobody what its user permitted by an access list, whether or not there is a program that takes
// the list away.
func TestNodeByHandLeavesNoAccessList(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root gives nodes back")
	}
	const list = "system.posix_acl_access"
	// The owner, user 4321, the group, the mask and others, each with its bits.
	permits := []byte{2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 6, 0, 0xe1, 0x10, 0, 0, 4, 0, 0, 0, 255, 255, 255, 255, 16, 0, 6, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255}
	for _, c := range []struct {
		program string // is setfacl, "" for none
		mode    uint32
		want    os.FileMode
	}{{"#!/bin/sh\necho $* >>$0.said\n", 0o660, 0o660}, {"", 0o660, 0o600}, {"", 0o600, 0o600}, {"", 0, 0o600}} {
		dir := t.TempDir()
		node, program := filepath.Join(dir, "node"), filepath.Join(dir, "setfacl")
		err := os.WriteFile(node, nil, 0o600)
		if c.program != "" {
			err = errors.Join(err, os.WriteFile(program, []byte(c.program), 0o700))
		}
		for _, name := range []string{"chown", "chmod", "stat"} {
			at, missing := exec.LookPath(name)
			err = errors.Join(err, missing, os.Symlink(at, filepath.Join(dir, name)))
		}
		if err = errors.Join(err, os.Chown(node, 1000, 0)); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setxattr(node, list, permits, 0); err != nil {
			t.Skipf("set an access list: %v", err)
		}
		sh := exec.CommandContext(t.Context(), "/bin/sh", "-c", nodeByHand(node, 1000, claims.Ownership{Mode: c.mode}))
		sh.Env = []string{"PATH=" + dir}
		out, err := sh.CombinedOutput()
		info, told := os.Stat(node)
		if err = errors.Join(err, told); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if info.Mode().Perm() != c.want {
			t.Errorf("of mode %o, with %q: %v, want %v", c.mode, c.program, info.Mode(), c.want)
		}
		if said, err := os.ReadFile(program + ".said"); c.program != "" && string(said) != "-b "+node+"\n" {
			t.Errorf("asked of setfacl: %q, %v", said, err)
		}
	}
}
