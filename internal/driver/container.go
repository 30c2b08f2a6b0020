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
)

// Surroundings are what a container needs of the driver beside the libraries
// that are covered.
type Surroundings struct {
	Mounts  []edits.Mount
	Devices []edits.Device
}

// ErrNoDevice marks a GPU whose device node cannot be found.
var ErrNoDevice = errors.New("no device node")

// Folders are those in which a container's loader finds libraries by name
// whatever the image's cache says: Debian's and its descendants', and those of
// the others, whose /lib64 may be a link to the second.
func Folders() []string {
	return []string{"/usr/lib/" + multiarch[runtime.GOARCH], "/usr/lib64"}
}

var multiarch = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}

// Surroundings looks for the files of the driver of that version and for the
// device nodes of the GPUs with these PCI addresses, as NVML writes them. On a
// simulated machine they are the files of its state.
func (f Finder) Surroundings(version string, pci []string) (*Surroundings, error) {
	if f.Instance != "" {
		return f.simulated()
	}
	root := filepath.Clean("/" + f.Root)
	common, err := toolkit.Common(root, version)
	if err != nil {
		return nil, err
	}
	s := &Surroundings{}
	for _, node := range common.DeviceNodes {
		if err := s.addDevice(f, node.Path); err != nil {
			return nil, err
		}
	}
	for _, address := range pci {
		node, err := f.node(address)
		if err != nil {
			return nil, err
		}
		if err := s.addDevice(f, node); err != nil {
			return nil, err
		}
	}
	for _, m := range common.Mounts {
		s.addFile(f, m)
	}
	return s, nil
}

// programs are what people run in a container with a GPU.
var programs = []string{"nvidia-smi", "nvidia-debugdump"}

// addFile takes up a driver's library under the name by which others ask for
// it, in every folder: without a linker's cache of the container's own, no other
// name would be found. What a desktop needs is left out.
func (s *Surroundings) addFile(f Finder, m *specs.Mount) {
	name := filepath.Base(m.HostPath)
	if slices.Contains(programs, name) {
		s.mount(f.Host(m.HostPath), "/usr/bin/"+name)
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
		s.mount(f.Host(resolved), filepath.Join(folder, filepath.Base(soname)))
	}
}

func (s *Surroundings) mount(source, target string) {
	if !slices.ContainsFunc(s.Mounts, func(m edits.Mount) bool { return m.Target == target }) {
		s.Mounts = append(s.Mounts, edits.Mount{Source: source, Target: target, Options: edits.ReadOnly})
	}
}

// addDevice takes up a character device of the machine. path may have the root.
func (s *Surroundings) addDevice(f Finder, path string) error {
	path = f.Host(path)
	var stat unix.Stat_t
	if err := unix.Stat(filepath.Join("/", f.Root, path), &stat); err != nil {
		return fmt.Errorf("%w: %s: %w: load the driver's kernel modules, for instance with nvidia-modprobe -u -c 0", ErrNoDevice, path, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFCHR {
		return fmt.Errorf("%w: %s is no device", ErrNoDevice, path)
	}
	s.Devices = append(s.Devices, edits.Device{
		Path: path, Source: path, Major: unix.Major(stat.Rdev), Minor: unix.Minor(stat.Rdev),
	})
	return nil
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
func (f Finder) simulated() (*Surroundings, error) {
	s := &Surroundings{}
	memory, err := filepath.Glob(filepath.Join(f.Instance, "memory-*"))
	if err != nil {
		return nil, fmt.Errorf("look for the simulated machine's files: %w", err)
	}
	slices.Sort(memory)
	for _, name := range []string{"state", "exports"} {
		path := filepath.Join(f.Instance, name)
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("look for the simulated machine's files: %w: start it again with `divvy simgpu start`", err)
		}
		memory = append(memory, path)
	}
	for _, path := range memory {
		s.Mounts = append(s.Mounts, edits.Mount{Source: path, Target: path, Options: edits.ReadWrite})
	}
	return s, nil
}
