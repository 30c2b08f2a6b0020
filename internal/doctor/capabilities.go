package doctor

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Instance is a MIG instance: the GPU's index, and the driver's numbers of the GPU instance and of the compute instance
// within it.
type Instance struct {
	GPU, GPUInstance, ComputeInstance int
}

// Capabilities checks that programs can be given MIG instances: for each the kernel module has two files below proc, and
// these name device nodes below dev.
func Capabilities(proc, dev string, instances []Instance) (checks []Check) {
	dir := filepath.Join(proc, "driver/nvidia/capabilities")
	if len(instances) == 0 {
		return nil
	}
	warn := func(name, next, format string, args ...any) {
		found := fmt.Sprintf(format, args...)
		if slices.ContainsFunc(checks, func(c Check) bool { return c.Found == found }) {
			return // GPUs may have instances of the same number
		}
		checks = append(checks, Check{ID: "mig.capabilities", Name: name, Status: Warn, Found: found, Next: next})
	}
	if _, err := os.Stat(dir); err != nil {
		warn("capabilities", "load the kernel module of the driver anew, or let this container see the machine's /proc/driver",
			"MIG instances cannot be given to programs: %v", err)
		return checks
	}
	for _, i := range instances {
		name := fmt.Sprintf("MIG instance %d of GPU %d", i.GPUInstance, i.GPU)
		for _, file := range []string{"access", fmt.Sprintf("ci%d/access", i.ComputeInstance)} {
			// The module counts GPUs otherwise than NVML: by what it calls minor numbers.
			found, err := filepath.Glob(filepath.Join(dir, "gpu*/mig", fmt.Sprintf("gi%d", i.GPUInstance), file))
			if err != nil || len(found) == 0 {
				warn(name, "make the instance anew; if that does not help, load the kernel module of the driver anew",
					"no program can be given it: %s is missing", filepath.Join(dir, "gpu*/mig", fmt.Sprintf("gi%d", i.GPUInstance), file))
				continue
			}
			for _, path := range found {
				if err := nodeOf(path, dev); err != nil {
					warn(name, "as root: nvidia-modprobe -f "+path, "no program can be given it: %v", err)
				}
			}
		}
	}
	return checks
}

// nodeOf returns why a capability has no device node.
func nodeOf(path, dev string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		number, ok := strings.CutPrefix(lines.Text(), "DeviceFileMinor: ")
		if !ok {
			continue
		}
		node := filepath.Join(dev, "nvidia-caps", "nvidia-cap"+number)
		if _, err := os.Lstat(node); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("its device node %s is missing", node)
		}
		return nil
	}
	return fmt.Errorf("%s names no device node", path)
}
