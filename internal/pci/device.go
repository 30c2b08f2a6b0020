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

// Unknown is the NUMA node of a device for which the firmware gives none. Two such devices do not count as near to
// each other.
const Unknown = -1

// ErrTree marks a sysfs whose PCI folders contradict each other.
var ErrTree = errors.New("inconsistent PCI tree")

// FileError is a file or link of sysfs with invalid content. Name is its path below the root of sysfs.
type FileError struct {
	Name string
	Err  error
}

func (e *FileError) Error() string { return fmt.Sprintf("read %s: %v", e.Name, e.Err) }
func (e *FileError) Unwrap() error { return e.Err }

// Device is one PCI function and its position in the PCI tree.
type Device struct {
	Address Address `json:"address"`
	// Class is the 24-bit class code, such as 0x030200.
	Class  uint32 `json:"class"`
	Vendor uint16 `json:"vendor"`
	ID     uint16 `json:"id"`
	// SubsystemVendor and Subsystem are 0 where unknown.
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
	// LinkSpeed and LinkWidth are the device's maximum, "" and 0 where unknown.
	LinkSpeed string `json:"linkSpeed,omitempty"`
	LinkWidth int    `json:"linkWidth,omitempty"`
	// Virtual marks a virtual function.
	Virtual bool `json:"virtual,omitempty"`
}

// OuterSwitch is the upstream port below the root port of a device, "" where it is behind no switch: devices that share it reach
// each other without the host bridge, through one switch or several. Where there is no switch, nothing lies between root port and
// device; a switch has a port upstream and one for the device.
func (d Device) OuterSwitch() string {
	if len(d.Bridges) < 3 {
		return ""
	}
	return d.Bridges[1].String()
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
		device, err := Read(sys, entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read PCI device %s: %w", entry.Name(), err)
		}
		devices = append(devices, device)
	}
	slices.SortFunc(devices, func(a, b Device) int { return a.Address.Compare(b.Address) })
	return devices, nil
}

// Folder resolves one symbolic link of sysfs into devices/ by its text alone. A link to anywhere else, such as to
// another link, is an error, so links cannot form a cycle.
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

// Read reads one PCI function, which sysfs names by its address.
func Read(sys fs.FS, name string) (Device, error) {
	address, err := ParseAddress(name)
	if err != nil {
		return Device{}, err
	}
	folder, err := Folder(sys, path.Join(devicesFolder, name))
	if err != nil {
		return Device{}, err
	}
	device := Device{Address: address}
	if err := device.locate(folder); err != nil {
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

// locate reads the host bridge and the bridges above the device from the folder's path.
func (d *Device) locate(folder string) error {
	parts := strings.Split(strings.TrimPrefix(folder, "devices/"), "/")
	start := slices.IndexFunc(parts, func(part string) bool { return strings.HasPrefix(part, "pci") })
	if start < 0 || parts[len(parts)-1] != d.Address.String() {
		return fmt.Errorf("%w: folder %s does not belong to %s", ErrTree, folder, d.Address)
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

// describe reads the optional attributes.
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
	// Devices that are not on a real link have 0 or 255 here, which are not widths.
	if value, err := strconv.Atoi(width); err == nil && value > 0 && value <= 32 {
		d.LinkWidth = value
	}
	_, err = fs.ReadLink(sys, path.Join(folder, "physfn"))
	d.Virtual = err == nil
	return nil
}

// optional returns a file's only line, or "" where there is no such file.
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

// number reads a hexadecimal number from a file such as vendor, which holds 0x10de.
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
