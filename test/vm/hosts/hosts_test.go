package hosts

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/hostfile"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/preflight"
	"github.com/divvy-gpu/divvy/internal/vm/vmtest"
	"github.com/divvy-gpu/divvy/test/bench/figure"
	"github.com/divvy-gpu/divvy/test/vm/guest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// sound are hosts without a fault, for a guest that has all: what is said of a host with one must not be said of them.
var sound = []vmtest.Host{
	{Name: "sound-disk", Ask: small, Boot: &vmtest.Boot{Shape: "whole", Location: vmtest.Apart}},
	{Name: "sound-accelerator", GPU: machine.Accelerator, Ask: small, Boot: &vmtest.Boot{Shape: "whole"}},
}

var small = preflight.Question{For: preflight.QEMU, Memory: 64 << 20}

// Each host of this guest's shape has its fault named first and nothing else is wrong, on the machine and in a recording of it.
func TestHosts(t *testing.T) {
	guest.Require(t)
	shape := os.Getenv("DIVVY_SHAPE")
	var faults, named, wrong int
	for _, h := range slices.Concat(vmtest.Hosts, sound) {
		if h.Boot == nil || h.Boot.Shape != shape {
			continue
		}
		var judged error
		passed := t.Run(h.Name, func(t *testing.T) { judged = judge(t, h) })
		if errors.Is(judged, vmtest.ErrFalse) {
			wrong++
		}
		if h.Fault == "" {
			continue
		}
		faults++
		if passed {
			named++
		}
	}
	if faults == 0 {
		t.Fatalf("no host has the shape %q", shape)
	}
	figure.Tell(t, figure.Figure{ID: "vm.preflight", Case: "fault named first", Values: []float64{float64(named)}, Note: fmt.Sprintf("%d of %d in the guest %s", named, faults, shape)})
	figure.Tell(t, figure.Figure{ID: "vm.preflight", Case: "false", Values: []float64{float64(wrong)}})
}

// judge prepares a host and judges what is said of it.
func judge(t *testing.T, h vmtest.Host) error {
	t.Helper()
	address, err := pci.ParseAddress(device(h))
	if err != nil {
		t.Fatal(err)
	}
	prepare(t, h.Boot.Prepare, guest.Function(device(h)))
	recording := look(t, h.Boot.Locked)
	recorded, err := hostfile.Parse(strings.NewReader(recording.File), h.Name)
	if err != nil {
		t.Fatal(err)
	}
	again, err := facts.Read(recorded.Root())
	if err != nil {
		t.Fatal(err)
	}
	for how, host := range map[string]*facts.Host{"the guest": recording.Host, "its recording": again} {
		given, found := host.Find(address)
		if !found {
			t.Fatalf("%s has no device at %s", how, address)
		}
		report := preflight.NewReport(host, []facts.Device{given}, h.Ask, "test")
		if !slices.ContainsFunc(report.Findings, func(f preflight.Finding) bool {
			return f.Status == preflight.Warn && (f.ID == "kvm" || f.ID == "cpu.virtualisation")
		}) {
			t.Errorf("%s: nothing is said of there being no KVM", how)
		}
		if judged := h.Judge(report.Findings); judged != nil {
			err = judged
			t.Errorf("%s: %v", how, judged)
			for _, f := range report.Findings {
				t.Logf("%s %s %s", f.Status, f.ID, f.Evidence)
			}
		}
	}
	same(t, recorded, recording.File)
	return err
}

// same records the recording, which gives the same one.
func same(t *testing.T, recorded *hostfile.Host, file string) {
	t.Helper()
	copied, err := hostfile.CaptureMachine(recorded.Root(), recorded.GPUs)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := copied.Format(&text); err != nil {
		t.Fatal(err)
	}
	if text.String() != file {
		t.Errorf("the recording of the recording differs from it")
	}
}

// device is the address of the one that is asked about.
func device(h vmtest.Host) string {
	switch {
	case h.GPU != "":
		return h.GPU
	case h.Boot.Location == vmtest.Together:
		return machine.SwitchedCard
	}
	return machine.RootedNVMe
}
