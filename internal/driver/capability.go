package driver

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/simgpu/simfiles"
)

// CapabilityFolder has the device nodes by which the driver gives MIG instances to users: who may open those of an instance
// may use it (MIG user guide, device nodes and capabilities).
const CapabilityFolder = "/dev/nvidia-caps"

// Capabilities finds the two device nodes of a MIG instance of the GPU with that PCI address: those of its GPU instance and
// of its compute instance. On a simulated machine they are files, without numbers.
func (f Finder) Capabilities(pci string, gpuInstance, computeInstance int) ([]edits.Device, error) {
	minor, err := f.minor(pci)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(f.proc(), fmt.Sprintf("driver/nvidia/capabilities/gpu%d/mig/gi%d", minor, gpuInstance))
	paths := []string{filepath.Join(folder, "access"), filepath.Join(folder, fmt.Sprintf("ci%d/access", computeInstance))}
	var numbers []uint32
	for _, path := range paths {
		number, err := capability(path)
		if err != nil {
			return nil, fmt.Errorf("%w of MIG instance %d/%d of the GPU at %s: %w", ErrNoDevice, gpuInstance, computeInstance, pci, err)
		}
		numbers = append(numbers, number)
	}
	var nodes []edits.Device
	for i, number := range numbers {
		node, err := f.capabilityNode(number)
		if err != nil {
			return nil, fmt.Errorf("%w, or nvidia-modprobe -f %s", err, f.Host(paths[i]))
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// capability reads the number of a capability's device node from its file.
func capability(path string) (uint32, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if key != "DeviceFileMinor" {
			continue
		}
		minor, err := strconv.ParseUint(strings.TrimSpace(value), 10, 20)
		if err != nil {
			return 0, fmt.Errorf("%s: the number %q", path, strings.TrimSpace(value))
		}
		return uint32(minor), nil
	}
	return 0, fmt.Errorf("%s names no DeviceFileMinor", path)
}

func (f Finder) capabilityNode(number uint32) (edits.Device, error) {
	path := filepath.Join(CapabilityFolder, fmt.Sprintf("nvidia-cap%d", number))
	if f.Instance == "" {
		return f.device(path)
	}
	simulated := filepath.Join(simfiles.Devices(f.Instance), "nvidia-caps", filepath.Base(path))
	if _, err := os.Stat(simulated); err != nil {
		return edits.Device{}, fmt.Errorf("%w: %w", ErrNoDevice, err)
	}
	return edits.Device{Path: simulated, Source: simulated, Minor: number}, nil
}

// Holding is the file that every process has open which holds the GPU with that PCI address: its device node. Of a
// simulated machine it is the state of all its GPUs.
func (f Finder) Holding(pci string) (string, error) {
	if f.Instance != "" {
		return filepath.Join(f.Instance, "state"), nil
	}
	node, err := f.node(pci)
	if err != nil {
		return "", err
	}
	return filepath.Join("/", f.Root, node), nil
}

// proc is where the kernel module tells of the driver.
func (f Finder) proc() string {
	if f.Instance != "" {
		return simfiles.Proc(f.Instance)
	}
	return filepath.Join("/", f.Root, "proc")
}
