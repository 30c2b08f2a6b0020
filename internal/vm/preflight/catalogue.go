package preflight

import (
	"fmt"
	"slices"
	"strings"
)

// ID names what a check looks at. It stays when words change.
type ID string

// Entry is what the manual says of a check.
type Entry struct {
	ID ID
	// Means says what is so when the check is not ok, or what is told when it always is.
	Means string
	// Do says what helps.
	Do string
}

// Catalogue are the checks, causes before what follows from them.
var Catalogue = []Entry{
	{"gpu.none", "the machine has no GPU", "seat and power the card; name another device by its address"},
	{"iommu.firmware", "the firmware describes no IOMMU, so it is off there or missing", "switch on VT-d, AMD-Vi or SMMU in the firmware"},
	{"iommu.kernel", "the firmware has an IOMMU and the kernel does not use it", "`intel_iommu=on`, or take away what switches it off"},
	{"iommu", "no IOMMU is seen, and whether the firmware has one cannot be told from here", "look on the host itself, outside of containers"},
	{"interrupts", "interrupts of devices are not remapped, so `vfio` refuses devices", "take away `intremap=off`; update the firmware"},
	{"iommu.unsafe", "`vfio` was told to go on without protection", "take the option away"},
	{"acs.override", "the kernel was told to pretend that ports keep devices apart", "take the parameter away before tenants come who are not trusted"},
	{"group.none", "the device is in no IOMMU group", "see `iommu`"},
	{"group.used", "the host uses a device of the group: a mounted disk, a network address or route", "another slot; move the disk, or take the network device down"},
	{"usb.all", "all USB controllers are in the group, the keyboard's too", "give single USB devices; log in by network"},
	{"group.shared", "other devices are in the group, and all of it must go", "another slot; give all; a firmware option for ACS"},
	{"group", "tells what is in the device's group", "nothing"},
	{"driver.first", "the device was reserved for `vfio-pci`, and another driver took it first", "a `softdep`, and a new initramfs"},
	{"driver.override", "some tool has said which driver alone may take the device", "end that tool's use of it"},
	{"driver", "tells which driver has the device", "nothing: it is changed for the virtual machine"},
	{"claimed", "`divvy vm claim` or a cluster has given the device to a virtual machine", "`divvy vm release`, once that has ended"},
	{"shares", "the GPU has shares", "end them"},
	{"holder", "processes have the device open", "end them"},
	{"drm", "`nvidia_drm` is loaded, by which displays and the console can take the GPU at any time", "unload it where GPUs go to virtual machines"},
	{"display.boot", "the console or a display server draws on the device", "another GPU as the first one; a console without it"},
	{"vgpu.on", "vGPUs are on the GPU", "end their virtual machines, then clear them: Divvy's by `divvy vm release`"},
	{"sriov.on", "the GPU has virtual functions", "take them away, Divvy's by `divvy vm functions`, or give one of them"},
	{"mig.instances", "the GPU has MIG instances", "take them away"},
	{"bars", "the firmware found no place for a region of the device", "switch on Above 4G Decoding"},
	{"nvswitch", "the GPU's NVLinks end at NVSwitches, which must be divided as well", "the fabric manager's shared mode, and a partition"},
	{"modules", "the kernel has no `vfio-pci`", "install the kernel's extra modules"},
	{"cpu.virtualisation", "the processor offers no virtualisation, so guests would be emulated", "switch on VT-x or SVM in the firmware, or nesting at this machine's host"},
	{"kvm", "`/dev/kvm` is missing or closed, so guests would be emulated", "load the module; the group of the node"},
	{"memory", "the guest wants more memory than the machine has", "less memory"},
	{"memlock", "less memory may be locked than the guest has", "a higher limit"},
	{"hugepages", "fewer huge pages are free than the guest needs", "more of them, or none"},
	{"bar.window", "the guest may have no room for the device's regions", "the host's address bits, or a larger window"},
	{"reset", "the kernel cannot reset the device", "restart the host between two users' guests"},
	{"companion", "other functions of the card do not go with it, or are in use", "give them as well; leave those that are in use"},
	{"secureboot", "tells of secure boot and the kernel's lockdown", "sign modules that are not the distribution's"},
	{"hidden", "tells which drivers in guests do not start under a hypervisor", "hide it, or a newer driver"},
	{"licence", "tells which forms need NVIDIA's licence", "buy it; see in the guest whether it is valid"},
	{"unseen", "something cannot be told from here", "look as root, outside of containers"},
}

// rank is the place in the catalogue.
func (id ID) rank() int { return slices.IndexFunc(Catalogue, func(e Entry) bool { return e.ID == id }) }

// Table is the manual's table of findings.
func Table() string {
	var w strings.Builder
	w.WriteString("| id | what it means | what to do |\n|---|---|---|\n")
	for _, e := range Catalogue {
		fmt.Fprintf(&w, "| `%s` | %s | %s |\n", e.ID, e.Means, e.Do)
	}
	return w.String()
}
