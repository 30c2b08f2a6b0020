package driver

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/nvml/toolkit"
	"github.com/divvy-gpu/divvy/internal/simgpu/simfiles"
)

// ErrNoDevice marks a GPU whose device node cannot be found.
var ErrNoDevice = errors.New("no device node")

// Folders are those in which a container's loader finds libraries by name
// whatever the image's cache says: Debian's and its descendants', and those of
// the others, whose /lib64 may be a link to the second.
func Folders() []string {
	return []string{"/usr/lib/" + multiarch[runtime.GOARCH], "/usr/lib64"}
}

var multiarch = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}

// Files looks for the files of the driver of that version, which takes long and
// holds as long as the driver's libraries are the same. On a simulated machine
// they are those of its state.
func (f Finder) Files(version string) ([]edits.Mount, error) {
	if f.Instance != "" {
		return f.simulated()
	}
	common, err := toolkit.Common(filepath.Clean("/"+f.Root), version)
	if err != nil {
		return nil, err
	}
	var files mounts
	for _, m := range common.Mounts {
		files.addFile(f, m)
	}
	return files, nil
}

// controls are the driver's device nodes that belong to no GPU; without the
// first two no program can use any.
var controls = []struct {
	path     string
	required bool
}{
	{"/dev/nvidiactl", true},
	{"/dev/nvidia-uvm", true},
	{"/dev/nvidia-uvm-tools", false},
	{"/dev/nvidia-modeset", false},
}

// Devices looks for the device nodes of the GPUs with these PCI addresses, as
// NVML writes them, and for those that all need. Modules may come and go, so
// that they are looked for each time.
func (f Finder) Devices(pci []string) ([]edits.Device, error) {
	if f.Instance != "" {
		return nil, nil
	}
	var devices []edits.Device
	for _, control := range controls {
		device, err := f.device(control.path)
		switch {
		case err == nil:
			devices = append(devices, device)
		case control.required:
			return nil, err
		}
	}
	for _, address := range pci {
		node, err := f.node(address)
		if err != nil {
			return nil, err
		}
		device, err := f.device(node)
		if err != nil {
			return nil, err
		}
		devices = append(devices, device)
	}
	return devices, nil
}

// mounts are those of a container so far.
type mounts []edits.Mount

// programs are what people run in a container with a GPU.
var programs = []string{"nvidia-smi", "nvidia-debugdump"}

// addFile takes up a driver's library under the name by which others ask for
// it, in every folder: without a linker's cache of the container's own, no other
// name would be found. What a desktop needs is left out.
func (s *mounts) addFile(f Finder, m *specs.Mount) {
	name := filepath.Base(m.HostPath)
	if slices.Contains(programs, name) {
		s.add(f.Host(m.HostPath), "/usr/bin/"+name)
		return
	}
	if !strings.HasPrefix(name, "lib") || !strings.Contains(name, ".so") {
		return
	}
	resolved, err := f.resolve(m.HostPath)
	if err != nil {
		return
	}
	object, err := inspect(resolved)
	if err != nil {
		return // another processor's
	}
	soname := object.soname
	if soname == "" {
		soname = name
	}
	for _, library := range Libraries {
		// Ours stands under these names. Beside it the driver's would come back with
		// the next ldconfig.
		if soname == string(library) {
			return
		}
	}
	for _, folder := range Folders() {
		s.add(f.Host(resolved), filepath.Join(folder, filepath.Base(soname)))
	}
}

func (s *mounts) add(source, target string) {
	if !slices.ContainsFunc(*s, func(m edits.Mount) bool { return m.Target == target }) {
		*s = append(*s, edits.Mount{Source: source, Target: target, Options: edits.ReadOnly})
	}
}

// device is a character device of the machine.
func (f Finder) device(path string) (edits.Device, error) {
	var stat unix.Stat_t
	if err := unix.Stat(filepath.Join("/", f.Root, path), &stat); err != nil {
		return edits.Device{}, fmt.Errorf("%w: %s: %w: load the driver's kernel modules, for instance with nvidia-modprobe -u -c 0", ErrNoDevice, path, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFCHR {
		return edits.Device{}, fmt.Errorf("%w: %s is no device", ErrNoDevice, path)
	}
	return edits.Device{Path: path, Source: path, Major: unix.Major(stat.Rdev), Minor: unix.Minor(stat.Rdev)}, nil
}

// node is a GPU's device node by the minor number that the kernel module tells
// (/proc/driver/nvidia/gpus/ADDRESS/information): NVML's index need not be it.
func (f Finder) node(pci string) (string, error) {
	address := strings.ToLower(pci)
	if domain, rest, ok := strings.Cut(address, ":"); ok && len(domain) == 8 && strings.HasPrefix(domain, "0000") {
		address = domain[4:] + ":" + rest // the kernel writes four digits, NVML eight
	}
	path := filepath.Join("/", f.Root, "proc/driver/nvidia/gpus", address, "information")
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%w of the GPU at %s: %w", ErrNoDevice, pci, err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		if strings.TrimSpace(key) != "Device Minor" {
			continue
		}
		minor, err := strconv.ParseUint(strings.TrimSpace(value), 10, 8)
		if err != nil {
			break
		}
		return fmt.Sprintf("/dev/nvidia%d", minor), nil
	}
	return "", fmt.Errorf("%w of the GPU at %s: %s names none", ErrNoDevice, pci, path)
}

// simulated are the files that the simulated driver's processes share. Nothing
// else of the instance goes into a container: the agent's socket may lie there.
func (f Finder) simulated() ([]edits.Mount, error) {
	paths, err := simfiles.Shared(f.Instance)
	if err != nil {
		return nil, err
	}
	files := make([]edits.Mount, 0, len(paths))
	for _, path := range paths {
		files = append(files, edits.Mount{Source: path, Target: path, Options: edits.ReadWrite})
	}
	return files, nil
}
