package simgpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/divvy-gpu/divvy/internal/simgpu/simfiles"
)

// Proc is the instance's stand-in for /proc.
func (i *Instance) Proc() string { return simfiles.Proc(i.Dir) }

// The ids of instances of a GPU, and the numbers of capabilities: two of the whole machine, then for each possible GPU instance its
// own and those of its compute instances, as /proc/driver/nvidia-caps/mig-minors of a machine lists them.
const (
	migConfigMinor    = 1
	migMonitorMinor   = 2
	migFirstMinor     = 3
	migGPUInstances   = 15
	migComputesOfThem = 8
)

// makeCapabilities makes what there is before the first instance: the capabilities to change and to see instances, and the
// list of all numbers. The simulated driver makes those of instances.
func (m *Machine) makeCapabilities(dir string) error {
	if !m.GPU.MIG {
		return nil
	}
	files := map[string]string{"driver/nvidia-caps/mig-minors": m.migMinors()}
	for name, minor := range map[string]int{"config": migConfigMinor, "monitor": migMonitorMinor} {
		mode := 0o400
		if name == "monitor" {
			mode = 0o444
		}
		files["driver/nvidia/capabilities/mig/"+name] = fmt.Sprintf("DeviceFileMinor: %d\nDeviceFileMode: %d\nDeviceFileModify: 1\n", minor, mode)
		node := filepath.Join(simfiles.Devices(dir), "nvidia-caps", fmt.Sprintf("nvidia-cap%d", minor))
		if err := makeReadable(node, ""); err != nil {
			return err
		}
	}
	for name, content := range files {
		if err := makeReadable(filepath.Join(simfiles.Proc(dir), name), content); err != nil {
			return err
		}
	}
	for minor, place := range m.byPCI() {
		address := strings.TrimPrefix(strings.ToLower(paddedPCI(m.GPUs[place].PCI)), "0000") // the kernel writes four digits of the domain
		information := filepath.Join(simfiles.Proc(dir), "driver/nvidia/gpus", address, "information")
		if err := makeReadable(information, fmt.Sprintf("Model: \t\t %s\nDevice Minor: \t %d\n", m.GPU.Name, minor)); err != nil {
			return err
		}
		path := filepath.Join(simfiles.Proc(dir), fmt.Sprintf("driver/nvidia/capabilities/gpu%d/mig", minor))
		if err := os.MkdirAll(path, 0o755); err != nil {
			return fmt.Errorf("make simulated capabilities: %w", err)
		}
	}
	return nil
}

// makeReadable makes a file that everybody may read, whatever the umask is.
func makeReadable(path, content string) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(content), 0o444)
	}
	if err == nil {
		err = os.Chmod(path, 0o444)
	}
	if err != nil {
		return fmt.Errorf("make simulated capabilities: %w", err)
	}
	return nil
}

func (m *Machine) migMinors() string {
	var list strings.Builder
	fmt.Fprintf(&list, "config %d\nmonitor %d\n", migConfigMinor, migMonitorMinor)
	minor := migFirstMinor
	for gpu := range m.GPUs {
		for gi := range migGPUInstances {
			fmt.Fprintf(&list, "gpu%d/gi%d/access %d\n", gpu, gi, minor)
			minor++
			for ci := range migComputesOfThem {
				fmt.Fprintf(&list, "gpu%d/gi%d/ci%d/access %d\n", gpu, gi, ci, minor)
				minor++
			}
		}
	}
	return list.String()
}
