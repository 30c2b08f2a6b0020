package driver

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/simgpu/simfiles"
)

// divided is a host whose third GPU has the MIG instance 7/0.
func divided(t *testing.T) host {
	h := newHost(t)
	h.write("proc/driver/nvidia/gpus/0000:3b:00.0/information", minorThree)
	h.write("proc/driver/nvidia/capabilities/gpu3/mig/gi7/access", "DeviceFileMinor: 66\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
	h.write("proc/driver/nvidia/capabilities/gpu3/mig/gi7/ci0/access", "DeviceFileMinor: 67\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
	h.write("proc/driver/nvidia/capabilities/gpu3/mig/gi8/access", "DeviceFileMinor: 75\n")
	h.write("proc/driver/nvidia/capabilities/gpu3/mig/gi8/ci0/access", "DeviceFileMode: 292\n")
	return h
}

const address = "00000000:3B:00.0"

func TestCapabilitiesOfAnInstance(t *testing.T) {
	h := divided(t)
	for minor, name := range map[uint32]string{66: "nvidia-cap66", 67: "nvidia-cap67", 75: "nvidia-cap75"} {
		h.device("dev/nvidia-caps/"+name, 510, minor)
	}
	got, err := Finder{Root: h.root}.Capabilities(address, 7, 0)
	want := []edits.Device{
		{Path: "/dev/nvidia-caps/nvidia-cap66", Source: "/dev/nvidia-caps/nvidia-cap66", Major: 510, Minor: 66},
		{Path: "/dev/nvidia-caps/nvidia-cap67", Source: "/dev/nvidia-caps/nvidia-cap67", Major: 510, Minor: 67},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// Each thing that is missing is named.
func TestCapabilitiesThatAreMissing(t *testing.T) {
	h := divided(t)
	h.device("dev/nvidia-caps/nvidia-cap75", 510, 75)
	for name, c := range map[string]struct {
		pci               string
		instance, compute int
		says              string
	}{
		"the GPU's file":         {"00000000:5E:00.0", 7, 0, "gpus/0000:5e:00.0/information"},
		"the instance's file":    {address, 9, 0, "capabilities/gpu3/mig/gi9/access"},
		"the compute's file":     {address, 7, 1, "capabilities/gpu3/mig/gi7/ci1/access"},
		"the number":             {address, 8, 0, "gi8/ci0/access names no DeviceFileMinor"},
		"the node, and a remedy": {address, 7, 0, "nvidia-modprobe -f /proc/driver/nvidia/capabilities/gpu3/mig/gi7/access"},
	} {
		_, err := Finder{Root: h.root}.Capabilities(c.pci, c.instance, c.compute)
		if !errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// A simulated machine has files for nodes.
func TestCapabilitiesOfASimulatedMachine(t *testing.T) {
	dir := t.TempDir()
	h := host{t: t, root: dir}
	h.write("proc/driver/nvidia/gpus/0000:3b:00.0/information", minorThree)
	h.write("proc/driver/nvidia/capabilities/gpu3/mig/gi0/access", "DeviceFileMinor: 4\n")
	h.write("proc/driver/nvidia/capabilities/gpu3/mig/gi0/ci0/access", "DeviceFileMinor: 5\n")
	finder := Finder{Instance: dir}
	if _, err := finder.Capabilities(address, 0, 0); !errors.Is(err, ErrNoDevice) {
		t.Errorf("without nodes: %v", err)
	}
	folder := filepath.Join(simfiles.Devices(dir), "nvidia-caps")
	for _, name := range []string{"nvidia-cap4", "nvidia-cap5"} {
		h.write("dev/nvidia-caps/"+name, "")
	}
	got, err := finder.Capabilities(address, 0, 0)
	if err != nil || len(got) != 2 || got[0].Source != filepath.Join(folder, "nvidia-cap4") || got[1].Source != filepath.Join(folder, "nvidia-cap5") {
		t.Errorf("%+v, %v", got, err)
	}
}

// Who holds a GPU has its node open; on a simulated machine, the state of all GPUs.
func TestFileOfWhoHoldsAGPU(t *testing.T) {
	h := divided(t)
	if got, err := (Finder{Root: h.root}).Holding(address); err != nil || got != filepath.Join(h.root, "dev/nvidia3") {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := (Finder{Root: h.root}).Holding("00000000:5E:00.0"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of another GPU: %v", err)
	}
	if got, err := (Finder{Instance: "/run/m"}).Holding(address); err != nil || got != "/run/m/state" {
		t.Errorf("%s, %v", got, err)
	}
}
