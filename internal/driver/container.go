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

// Folders are those in which a container's loader finds libraries by name without
// the image's cache: that of Debian and its derivatives, and that of the other
// distributions, whose /lib64 may be a link to it.
func Folders() []string {
	return []string{"/usr/lib/" + multiarch[runtime.GOARCH], "/usr/lib64"}
}

var multiarch = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}

// Files finds the files of the driver d of that version. The search takes long, and
// its result holds until the driver's libraries change. On a simulated machine
// they are the files of its state.
func (f Finder) Files(d *Driver, version string) ([]edits.Mount, error) {
	if f.Instance != "" {
		return f.simulated()
	}
	root := filepath.Clean("/" + f.Root)
	common, err := toolkit.Common(root, version)
	if err != nil {
		// The toolkit knows fewer folders than standard has.
		common, err = toolkit.Common(root, version, filepath.Dir(d.Chosen[CUDA]), filepath.Dir(d.Chosen[NVML]))
	}
	if err != nil {
		return nil, err
	}
	var files mounts
	for _, m := range common.Mounts {
		files.addFile(f, m)
	}
	return files, nil
}

// controls are the driver's device nodes that belong to no GPU. No program can use
// a GPU without the required ones.
var controls = []struct {
	path     string
	required bool
}{
	{"/dev/nvidiactl", true},
	{"/dev/nvidia-uvm", true},
	{"/dev/nvidia-uvm-tools", false},
	{"/dev/nvidia-modeset", false},
}

// Devices finds the device nodes of the GPUs with these PCI addresses, in NVML's
// notation, and those that every program needs. It looks each time, because kernel
// modules may be loaded and unloaded.
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

// mounts collects the mounts of a container.
type mounts []edits.Mount

// programs are what people run in a container with a GPU.
var programs = []string{"nvidia-smi", "nvidia-debugdump"}

// addFile adds a driver's library to every folder under its soname: without an
// entry in the container's linker cache, the loader finds it by no other name. It
// skips files that are neither libraries nor one of programs.
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
		return // for another processor
	}
	soname := object.soname
	if soname == "" {
		soname = name
	}
	for _, library := range Libraries {
		// Divvy's library has this name. If the driver's were in the same folders,
		// the next ldconfig could choose it.
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

// device describes a character device of the machine.
func (f Finder) device(path string) (edits.Device, error) {
	var stat unix.Stat_t
	if err := unix.Stat(filepath.Join("/", f.Root, path), &stat); err != nil {
		return edits.Device{}, fmt.Errorf("%w: %s: %w: load the driver's kernel modules, for instance with nvidia-modprobe -u -c 0", ErrNoDevice, path, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFCHR {
		return edits.Device{}, fmt.Errorf("%w: %s is not a device", ErrNoDevice, path)
	}
	return edits.Device{Path: path, Source: path, Major: unix.Major(stat.Rdev), Minor: unix.Minor(stat.Rdev)}, nil
}

// node finds a GPU's device node. NVML's index may differ from its number.
func (f Finder) node(pci string) (string, error) {
	minor, err := f.minor(pci)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("/dev/nvidia%d", minor), nil
}

// minor finds a GPU's minor number in the kernel module's file /proc/driver/nvidia/gpus/ADDRESS/information.
func (f Finder) minor(pci string) (uint64, error) {
	address := strings.ToLower(pci)
	if domain, rest, ok := strings.Cut(address, ":"); ok && len(domain) == 8 && strings.HasPrefix(domain, "0000") {
		address = domain[4:] + ":" + rest // the kernel writes four digits, NVML eight
	}
	path := filepath.Join(f.proc(), "driver/nvidia/gpus", address, "information")
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("%w of the GPU at %s: %w", ErrNoDevice, pci, err)
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
		return minor, nil
	}
	return 0, fmt.Errorf("%w of the GPU at %s: %s names none", ErrNoDevice, pci, path)
}

// simulated finds the files that the simulated driver's processes share, and its nvidia-smi. Nothing
// else of the instance may go into a container, because its directory may hold the
// agent's socket.
func (f Finder) simulated() ([]edits.Mount, error) {
	paths, err := simfiles.Shared(f.Instance)
	if err != nil {
		return nil, err
	}
	files := make([]edits.Mount, 0, len(paths))
	for _, path := range paths {
		files = append(files, edits.Mount{Source: path, Target: path, Options: edits.ReadWrite})
	}
	// A machine that an older Divvy made may lack it.
	if tool := filepath.Join(f.Instance, programs[0]); exists(tool) {
		files = append(files, edits.Mount{Source: tool, Target: "/usr/bin/" + programs[0], Options: edits.ReadOnly})
	}
	return files, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
