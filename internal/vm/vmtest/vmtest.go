// Package vmtest has hosts with one fault each, and judges what preflight says of them. Modelled hosts are files that were written
// by hand, from documents: none is a recording of a real machine. The others are for a virtual machine to boot, and say how.
package vmtest

import (
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/vm/preflight"
)

// Host is one with one fault, or with none.
type Host struct {
	Name string
	// GPU is the address of the device that is asked about. The one of a booted host is known in the guest alone and empty here.
	GPU string
	// Ask is the question.
	Ask preflight.Question
	// Fault is what must be named first, "" for a sound host.
	Fault preflight.ID
	// Boot is how to boot it; nil for a model in testdata/hosts/vm.
	Boot *Boot
}

// Boot is how a guest gets a fault.
type Boot struct {
	// Shape is the guest's, by its name in test/vm/machine.
	Shape string
	// Location says where the device is that is asked about.
	Location Location
	// Prepare is what is done in the guest before preflight looks, and undone after.
	Prepare Preparation
	// Locked is the limit of locked memory for preflight, in bytes; 0 for none.
	Locked uint64
}

// Location says what is beside a device.
type Location string

// The locations.
const (
	// Apart has the device on a root port of its own.
	Apart Location = "apart"
	// Together has it with a disk behind a switch that keeps nothing apart.
	Together Location = "together"
)

// Preparation is done in the guest.
type Preparation string

// The preparations.
const (
	// Mount mounts the disk that is together with the device.
	Mount Preparation = "mount"
	// Reserve tells vfio-pci by modprobe.d to take the device, which another driver has.
	Reserve Preparation = "reserve"
	// Functions gives the device virtual ones.
	Functions Preparation = "functions"
)

const gib = 1 << 30

func ask(platform preflight.Platform) preflight.Question {
	return preflight.Question{For: platform, Memory: 16 * gib}
}

// Hosts are all of them.
var Hosts = []Host{
	{Name: "a100", GPU: "0000:3d:00.0", Ask: ask(preflight.QEMU)},
	{Name: "geforce", GPU: "0000:01:00.0", Ask: ask(preflight.Libvirt)},
	{Name: "mi210", GPU: "0000:23:00.0", Ask: ask(preflight.OpenStack)},

	{Name: "firmware-off", GPU: "0000:3d:00.0", Ask: ask(preflight.QEMU), Fault: "iommu.firmware"},
	{Name: "root-disk", GPU: "0000:3e:00.0", Ask: ask(preflight.KubeVirt), Fault: "group.used"},
	{Name: "boot-display", GPU: "0000:01:00.0", Ask: ask(preflight.Libvirt), Fault: "display.boot"},
	{Name: "above-4g-off", GPU: "0000:3d:00.0", Ask: ask(preflight.Proxmox), Fault: "bars"},
	{Name: "nvswitch", GPU: "0000:3d:00.0", Ask: ask(preflight.QEMU), Fault: "nvswitch"},
	{Name: "vgpu", GPU: "0000:3d:00.0", Ask: ask(preflight.OpenStack), Fault: "vgpu.on"},
	{Name: "held", GPU: "0000:3d:00.0", Ask: ask(preflight.QEMU), Fault: "holder"},

	{Name: "kernel-off", Ask: small, Fault: "iommu.kernel", Boot: &Boot{Shape: "iommu-off", Location: Apart}},
	{Name: "no-iommu", Ask: small, Fault: "iommu.firmware", Boot: &Boot{Shape: "iommu-none", Location: Apart}},
	{Name: "no-remapping", Ask: small, Fault: "interrupts", Boot: &Boot{Shape: "no-remapper", Location: Apart}},
	{Name: "no-acs", Ask: small, Fault: "group.shared", Boot: &Boot{Shape: "whole", Location: Together}},
	{Name: "mounted-disk", Ask: small, Fault: "group.used", Boot: &Boot{Shape: "whole", Location: Together, Prepare: Mount}},
	{Name: "taken-first", Ask: small, Fault: "driver.first", Boot: &Boot{Shape: "whole", Location: Apart, Prepare: Reserve}},
	{Name: "functions-on", Ask: small, Fault: "sriov.on", Boot: &Boot{Shape: "whole", Location: Apart, Prepare: Functions}},
	{Name: "little-lock", Ask: small, Fault: "memlock", Boot: &Boot{Shape: "whole", Location: Apart, Locked: 64 << 10}},
}

// small is the question about a guest in a guest.
var small = preflight.Question{For: preflight.QEMU, Memory: 64 << 20}

// Errors of [Host.Judge].
var (
	ErrMissed = errors.New("the fault is not named first")
	ErrFalse  = errors.New("a fault is named that is not there")
)

// emulated are what is true of a guest whose processor is emulated, and is no fault of its own there.
var emulated = map[preflight.ID]bool{"cpu.virtualisation": true, "kvm": true}

// Judge compares what preflight found with the host's fault: it must come first, and nothing else may be a failure or a warning.
func (h Host) Judge(found []preflight.Finding) error {
	wrong := []preflight.Finding{}
	for _, f := range found {
		if (f.Status == preflight.Fail || f.Status == preflight.Warn) && (h.Boot == nil || !emulated[f.ID]) {
			wrong = append(wrong, f)
		}
	}
	if h.Fault != "" {
		if len(wrong) == 0 || wrong[0].ID != h.Fault {
			return fmt.Errorf("judge %s: %w: want %s, got %v", h.Name, ErrMissed, h.Fault, ids(wrong))
		}
		wrong = wrong[1:]
	}
	if len(wrong) > 0 {
		return fmt.Errorf("judge %s: %w: %v", h.Name, ErrFalse, ids(wrong))
	}
	return nil
}

func ids(found []preflight.Finding) []preflight.ID {
	names := make([]preflight.ID, len(found))
	for i, f := range found {
		names[i] = f.ID
	}
	return names
}
