package slice

import (
	"errors"
	"path/filepath"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/simgpu/simfiles"
)

var _ backend.Opener = (*Backend)(nil)

// Open implements [backend.Opener].
func (b *Backend) Open(gpus []backend.GPU) (edits.Edits, error) {
	d := driverView{finder: b.options.Finder}
	var err error
	if d.found, d.files, err = b.machine.memory.files(d.finder, b.options.Inventory.Version().Driver); err != nil {
		return edits.Edits{}, err
	}
	if d.devices, err = devicesOf(d.finder, gpus); err != nil {
		return edits.Edits{}, err
	}
	return b.machine.open(d), nil
}

// devicesOf finds the device nodes of GPUs. One that has none is lost: who monitors the others must not be kept from them.
func devicesOf(finder driver.Finder, gpus []backend.GPU) ([]edits.Device, error) {
	var pci []string
	var faults []error
	for _, gpu := range gpus {
		if _, err := finder.Devices([]string{gpu.PCI}); err != nil {
			faults = append(faults, err)
			continue
		}
		pci = append(pci, gpu.PCI)
	}
	if len(pci) == 0 {
		return nil, errors.Join(faults...)
	}
	return finder.Devices(pci)
}

// open is pure. The driver's own libraries are where every loader looks, and nothing of ours is there.
func (m machine) open(d driverView) edits.Edits {
	var e edits.Edits
	for _, library := range driver.Libraries {
		for _, folder := range driver.Folders() {
			for _, name := range []string{string(library), library.Bare()} {
				e.Mounts = append(e.Mounts, edits.Mount{Source: d.finder.Host(d.found.Chosen[library]), Target: filepath.Join(folder, name), Options: edits.ReadOnly})
			}
		}
	}
	e.Mounts = append(e.Mounts, d.files...)
	e.Devices = d.devices
	// A runtime of NVIDIA's that is the node's default would add all GPUs otherwise.
	e.Env = []edits.Env{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "void"}}
	if m.Instance != "" {
		e.Env = append(e.Env, edits.Env{Name: simfiles.Variable, Value: m.Instance})
	}
	return e
}
