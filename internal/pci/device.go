package pci

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Unknown is the NUMA node of a device of which the firmware tells none. It is a node of its own: two devices
// of unknown place are not near each other.
const Unknown = -1

// ErrTree marks a sysfs whose PCI part contradicts itself.
var ErrTree = errors.New("inconsistent PCI tree")

// FileError is a file or link of sysfs, named from its root, that holds what it should not.
type FileError struct {
	Name string
	Err  error
}

func (e *FileError) Error() string { return fmt.Sprintf("read %s: %v", e.Name, e.Err) }
func (e *FileError) Unwrap() error { return e.Err }

// Device is one PCI function and its place.
type Device struct {
	Address Address `json:"address"`
	// Class is the 24-bit class code, such as 0x030200.
	Class  uint32 `json:"class"`
	Vendor uint16 `json:"vendor"`
	ID     uint16 `json:"id"`
	// SubsystemVendor and Subsystem are 0 where the host tells none.
	SubsystemVendor uint16 `json:"subsystemVendor"`
	Subsystem       uint16 `json:"subsystem"`
	// HostBridge is the root complex below which the device is, such as pci0000:3a.
	HostBridge string `json:"hostBridge"`
	// Bridges are the ports between the host bridge and the device, from the root port downwards.
	Bridges []Address `json:"bridges,omitempty"`
	// NUMANode is Unknown or a node's number.
	NUMANode int `json:"numaNode"`
	// CPUs is the list of processors near the device in the kernel's notation, "" where unknown.
	CPUs string `json:"cpus,omitempty"`
	// LinkSpeed and LinkWidth are the most the device can do, "" and 0 where unknown.
	LinkSpeed string `json:"linkSpeed,omitempty"`
	LinkWidth int    `json:"linkWidth,omitempty"`
	// Virtual marks a virtual function.
	Virtual bool `json:"virtual,omitempty"`
}

const devicesFolder = "bus/pci/devices"

// Scan reads every PCI function of a sysfs, which is what is mounted at /sys, ordered by address. A host
// without PCI has none.
func Scan(sys fs.FS) ([]Device, error) {
	entries, err := fs.ReadDir(sys, devicesFolder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list PCI devices: %w", err)
	}
	devices := make([]Device, 0, len(entries))
	for _, entry := range entries {
		device, err := read(sys, entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read PCI device %s: %w", entry.Name(), err)
		}
		devices = append(devices, device)
	}
	slices.SortFunc(devices, func(a, b Device) int { return a.Address.Compare(b.Address) })
	return devices, nil
}

// Folder resolves one symbolic link of sysfs into the devices tree, lexically: a link that leads elsewhere, or
// back to links, is an error and not a walk without end.
func Folder(sys fs.FS, link string) (string, error) {
	target, err := fs.ReadLink(sys, link)
	if err != nil {
		return "", fmt.Errorf("follow %s: %w", link, err)
	}
	folder := path.Join(path.Dir(link), target)
	if !strings.HasPrefix(folder, "devices/") || !fs.ValidPath(folder) {
		return "", &FileError{link, fmt.Errorf("%w: it leads to %s, not into devices/", ErrTree, folder)}
	}
	return folder, nil
}

func read(sys fs.FS, name string) (Device, error) {
	address, err := ParseAddress(name)
	if err != nil {
		return Device{}, err
	}
	folder, err := Folder(sys, path.Join(devicesFolder, name))
	if err != nil {
		return Device{}, err
	}
	device := Device{Address: address}
	if err := device.place(folder); err != nil {
		return Device{}, &FileError{path.Join(devicesFolder, name), err}
	}
	class, err := number(sys, path.Join(folder, "class"), 24, true)
	if err != nil {
		return Device{}, err
	}
	device.Class = uint32(class)
	for _, field := range []struct {
		name     string
		into     *uint16
		required bool
	}{
		{"vendor", &device.Vendor, true}, {"device", &device.ID, true},
		{"subsystem_vendor", &device.SubsystemVendor, false}, {"subsystem_device", &device.Subsystem, false},
	} {
		value, err := number(sys, path.Join(folder, field.name), 16, field.required)
		if err != nil {
			return Device{}, err
		}
		*field.into = uint16(value)
	}
	return device, device.describe(sys, folder)
}

// place takes the way from the host bridge to the device from the folder's path.
func (d *Device) place(folder string) error {
	parts := strings.Split(strings.TrimPrefix(folder, "devices/"), "/")
	start := slices.IndexFunc(parts, func(part string) bool { return strings.HasPrefix(part, "pci") })
	if start < 0 || parts[len(parts)-1] != d.Address.String() {
		return fmt.Errorf("%w: the folder %s is not that of %s", ErrTree, folder, d.Address)
	}
	d.HostBridge = parts[start]
	for _, part := range parts[start+1 : len(parts)-1] {
		bridge, err := ParseAddress(part)
		if err != nil {
			return fmt.Errorf("%w: folder %s: %w", ErrTree, folder, err)
		}
		if bridge == d.Address || slices.Contains(d.Bridges, bridge) {
			return fmt.Errorf("%w: folder %s passes %s twice", ErrTree, folder, bridge)
		}
		d.Bridges = append(d.Bridges, bridge)
	}
	return nil
}

// describe reads what may be missing.
func (d *Device) describe(sys fs.FS, folder string) error {
	d.NUMANode = Unknown
	text, err := optional(sys, path.Join(folder, "numa_node"))
	if err != nil {
		return err
	}
	if text != "" {
		node, err := strconv.Atoi(text)
		if err != nil || node < Unknown {
			return &FileError{path.Join(folder, "numa_node"), fmt.Errorf("%q is not a NUMA node", text)}
		}
		d.NUMANode = node
	}
	if d.CPUs, err = optional(sys, path.Join(folder, "local_cpulist")); err != nil {
		return err
	}
	if d.LinkSpeed, err = optional(sys, path.Join(folder, "max_link_speed")); err != nil {
		return err
	}
	width, err := optional(sys, path.Join(folder, "max_link_width"))
	if err != nil {
		return err
	}
	// Devices that are not on a real link answer 0 or 255 here; neither is a width.
	if value, err := strconv.Atoi(width); err == nil && value > 0 && value <= 32 {
		d.LinkWidth = value
	}
	_, err = fs.ReadLink(sys, path.Join(folder, "physfn"))
	d.Virtual = err == nil
	return nil
}

// optional is a file's only line, "" where there is no such file.
func optional(sys fs.FS, name string) (string, error) {
	text, err := fs.ReadFile(sys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// number reads a file such as vendor, which holds 0x10de.
func number(sys fs.FS, name string, bits int, required bool) (uint64, error) {
	text, err := optional(sys, name)
	if err != nil {
		return 0, err
	}
	if text == "" && !required {
		return 0, nil
	}
	value, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, bits)
	if err != nil {
		return 0, &FileError{name, fmt.Errorf("%q is not a number of %d bits", text, bits)}
	}
	return value, nil
}
