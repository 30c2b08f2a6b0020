// Package facts is what a host tells about giving its devices to virtual machines: processor, IOMMU and its groups, drivers,
// virtual functions, ports that keep devices apart, memory, and who uses what. It is one snapshot, read from the root of a
// file system that the caller gives, so a machine, a recording of one and a test are read alike.
//
// It changes nothing and judges nothing. What vanishes while it is read is not there; what may not be read is named.
package facts

import (
	"slices"

	"github.com/divvy-gpu/divvy/internal/pci"
)

// Answer is what is known of a question. The zero value is that nothing is.
type Answer string

// The answers.
const (
	Unknown Answer = ""
	Yes     Answer = "yes"
	No      Answer = "no"
)

// Host is a snapshot of one machine.
type Host struct {
	// TopologyOnly is true for a recording that has PCI devices and how they are joined, and nothing else: what is empty here is
	// not known then.
	TopologyOnly bool
	// Kernel is the release of the running kernel.
	Kernel string
	// Parameters are those of the kernel's command line that concern devices for virtual machines, in their order.
	Parameters []string
	CPU        CPU
	// KVM tells of /dev/kvm: Yes where it can be opened, No where it is missing, Unknown where it is closed to the reader.
	KVM   Answer
	IOMMU IOMMU
	// Modules are those of the kernel that concern this subject, by name with underscores.
	Modules map[string]Module
	// ModulesKnown is true where the modules that can be loaded could be read.
	ModulesKnown bool
	// Rules are the lines of modprobe.d that concern this subject, with single spaces.
	Rules []string
	// Devices are the PCI functions, ordered by address.
	Devices []Device
	Memory  Memory
	// Locked is how much memory the reader's programs may lock, in bytes; Unlimited where there is no limit.
	Locked int64
	// Lockdown is the kernel's: none, integrity or confidentiality; "" where unknown.
	Lockdown   string
	SecureBoot Answer
	// Xen is true in a domain of Xen, whose hypervisor owns the IOMMU.
	Xen bool
	// FabricMode is FABRIC_MODE of NVIDIA's fabric manager, "" where it is not set.
	FabricMode   string
	Framebuffers []Framebuffer
	// Blind says why holders of devices may be unseen, one reason each.
	Blind []string
	// Unread are the files that are there and may not be read, or not now, from the root.
	Unread []string
}

// Unlimited is a limit that is none.
const Unlimited = int64(1<<63 - 1)

// CPU is what the first processor tells.
type CPU struct {
	Vendor string
	// Virtualization is No where the processor of a known vendor has neither vmx nor svm.
	Virtualization Answer
	// Hypervisor is true where the machine is a virtual one itself.
	Hypervisor bool
	// AddressBits is the width of physical addresses, 0 where unknown.
	AddressBits int
}

// IOMMU is what protects memory from devices.
type IOMMU struct {
	// Units are those that the kernel uses.
	Units []string
	// Tables are the firmware's tables that can be seen, among DMAR, IVRS, IORT and VIOT.
	Tables []string
	// TablesKnown is true where the firmware's tables can be listed.
	TablesKnown bool
	// Remapping says whether interrupts of devices are remapped.
	Remapping Answer
	// Unsafe is true where vfio was told to go on without that, or without an IOMMU; UnsafeInterrupts where without that.
	Unsafe, UnsafeInterrupts bool
}

// Module is one of the kernel's.
type Module struct {
	// Loaded is true also for one that is built in.
	Loaded  bool
	Builtin bool
	// Available is true where it can be loaded.
	Available bool
	// File is where it can be loaded from, below the folder of its kernel's modules, "" for nowhere.
	File string
	// Foreign is true for a loaded one that was not made with the kernel.
	Foreign bool
}

// Memory is the machine's.
type Memory struct {
	// Total is in bytes.
	Total int64
	Huge  []HugePages
}

// HugePages are those of one size.
type HugePages struct {
	// Size is of one page, in bytes.
	Size        int64
	Count, Free int64
}

// Framebuffer is what the console or a display server draws on.
type Framebuffer struct {
	Name string
	// Device is the PCI function, the zero address where the firmware's is used.
	Device pci.Address
	// OnPCI is true where Device is set.
	OnPCI bool
}

// NoGroup is the group of a device without one.
const NoGroup = -1

// Device is one PCI function with what concerns virtual machines.
type Device struct {
	pci.Device
	// Model is the driver's name of a GPU, UUID its name for programs; both are empty without NVIDIA's driver.
	Model, UUID string
	// Driver is empty for none. Override is the driver that alone may take it, empty for any.
	Driver, Override string
	// Group is the IOMMU group's number or NoGroup.
	Group int
	// BARs are the regions that have a size.
	BARs []BAR
	// Resets are the ways in which the kernel can reset it; ResetKnown is false where they cannot be told.
	Resets     []string
	ResetKnown bool
	// BootDisplay is true for the one that the firmware draws on.
	BootDisplay bool
	// VFsTotal and VFs are how many virtual functions there can be and are. Parent is the physical function of a virtual one.
	VFsTotal, VFs int
	Parent        pci.Address
	// Port is what a port keeps apart, nil for what is no PCI Express port.
	Port *Port
	VGPU *VGPU
	// Instances is the number of MIG instances.
	Instances int
	// Attached are the USB devices below a USB controller, without hubs.
	Attached []string
	// Nodes are its device nodes, Holders the processes that have one open, Uses what the host does with it.
	Nodes   []string
	Holders []Holder
	Uses    []Use
	// Connected are the network devices on it, or on what it is a part of, that have an address or a route.
	Connected []string
	// Ties are what else joins its network devices to others.
	Ties []Tie
}

// BAR is a region of memory or ports.
type BAR struct {
	Number int
	// Size is in bytes.
	Size uint64
	// Memory is false for ports. Wide is true for one that may lie above 4 GiB.
	Memory, Wide bool
	// Placed is false where the firmware and the kernel found no place for it.
	Placed bool
}

// Port is a port of PCI Express.
type Port struct {
	// Readable is false where the capabilities could not be read, which only root may.
	Readable bool
	// HasACS says whether it can keep devices apart; Apart whether it does, in all ways that count.
	HasACS, Apart bool
}

// VGPU is what NVIDIA's host driver offers on a function.
type VGPU struct {
	// Interface is mdev or vendor-vfio.
	Interface string
	Types     []VGPUType
	// Current is the type that a function has under vendor-vfio, "" for none. Mdevs are the UUIDs of mediated devices.
	Current string
	Mdevs   []string
}

// VGPUType is one that can be made now.
type VGPUType struct {
	ID, Name string
	// Available is how many more can be made, -1 where that is not told.
	Available int
	// Most is how many the GPU can have in all, 0 where that is not told. Made is how many this function has of them by mdev.
	Most, Made int
}

// Holder is a process that has a device's node open.
type Holder struct {
	PID  int
	Name string
	Node string
	// Container is the beginning of its container's id, "" outside of containers.
	Container string
}

// Use is what the host does with a device.
type Use struct {
	// Kind is disk or route.
	Kind string
	// Name is the block or network device's. At is the folder where a disk is mounted, or else what the disk is, such as swap.
	Name, At string
}

// Find returns the device at an address.
func (h *Host) Find(at pci.Address) (Device, bool) {
	i, found := slices.BinarySearchFunc(h.Devices, at, func(d Device, a pci.Address) int { return d.Address.Compare(a) })
	if !found {
		return Device{}, false
	}
	return h.Devices[i], true
}

// InGroup are the devices of a group, ordered by address.
func (h *Host) InGroup(group int) []Device {
	var members []Device
	for _, d := range h.Devices {
		if group != NoGroup && d.Group == group {
			members = append(members, d)
		}
	}
	return members
}

// VirtualOf are the virtual functions of a physical one.
func (h *Host) VirtualOf(parent pci.Address) []Device {
	var found []Device
	for _, d := range h.Devices {
		if d.Virtual && d.Parent == parent {
			found = append(found, d)
		}
	}
	return found
}

// IsBridge tells whether a device connects others and is never given away itself.
func (d Device) IsBridge() bool { return d.Class>>16 == 0x06 }

// IsPort tells whether it is a bridge between PCI buses.
func (d Device) IsPort() bool { return d.Class>>8 == 0x0604 }

// IsGPU tells whether it draws or computes: a display or an accelerator of a vendor that makes GPUs for either.
func (d Device) IsGPU() bool {
	base := d.Class >> 16
	return (base == 0x03 || base == 0x12) && slices.Contains([]uint16{NVIDIA, AMD, Intel}, d.Vendor)
}

// Vendors of GPUs.
const (
	NVIDIA uint16 = 0x10de
	AMD    uint16 = 0x1002
	Intel  uint16 = 0x8086
)

// SameSlot tells whether two functions are of one card.
func SameSlot(a, b pci.Address) bool {
	a.Function, b.Function = 0, 0
	return a == b
}
