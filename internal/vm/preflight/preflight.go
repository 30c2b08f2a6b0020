// Package preflight judges whether a host can give a GPU to virtual machines, from the host's facts alone: what is in the way, by
// what it is seen, and what helps. It changes nothing, reads nothing and starts nothing.
package preflight

import (
	"cmp"
	"slices"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// Platform is what runs the virtual machines.
type Platform string

// The platforms.
const (
	QEMU      Platform = "qemu"
	Libvirt   Platform = "libvirt"
	Proxmox   Platform = "proxmox"
	OpenStack Platform = "openstack"
	KubeVirt  Platform = "kubevirt"
	Xen       Platform = "xen"
	ESXi      Platform = "esxi"
)

// Platforms are all of them.
var Platforms = []Platform{QEMU, Libvirt, Proxmox, OpenStack, KubeVirt, Xen, ESXi}

// Status is the result of a check.
type Status string

// The results, the worst first.
const (
	// Fail is a fault with which the platform cannot start a virtual machine with the device, or the host would lose what it uses.
	Fail Status = "fail"
	// Warn is a fault with which it can.
	Warn Status = "warn"
	// Unknown is what cannot be told from here.
	Unknown Status = "unknown"
	OK      Status = "ok"
)

var order = []Status{Fail, Warn, Unknown, OK}

// Finding is one check and its result. What was read of the host stands in Evidence as it is there.
type Finding struct {
	ID     ID     `json:"id"`
	Status Status `json:"status"`
	// Device is the one that it is about, nil for the whole host.
	Device   *pci.Address `json:"device,omitempty"`
	Evidence string       `json:"evidence"`
	// Remedy says what helps, and Command what to type for it or to see more. Both are empty where nothing is wrong.
	Remedy  string `json:"remedy,omitempty"`
	Command string `json:"command,omitempty"`
}

// Question is what is asked about a host.
type Question struct {
	For Platform
	// Memory is the guest's, in bytes; 0 where it is not known yet.
	Memory int64
	// Own is what Divvy itself has done to the host's devices.
	Own Own
}

// look is a check of one host, and of one device of it.
type look struct {
	host   *facts.Host
	device facts.Device
	ask    Question
}

// ofHost are the checks of the host, ofDevice those of each device. Their order is that of causes before what follows from them.
var (
	ofHost   = []func(look) []Finding{look.virtualisation, look.iommu, look.interrupts, look.unsafe, look.override, look.modules, look.secureBoot, look.memory, look.unseen}
	ofDevice = []func(look) []Finding{
		look.group, look.driver, look.claimed, look.shares, look.holders, look.drm, look.display, look.vgpu, look.virtual, look.instances, look.regions, look.window, look.reset,
		look.switches, look.companions, look.hidden, look.licence,
	}
)

// Judge checks a host and the given devices of it. The findings are sorted: the worst first, among equal ones causes first.
func Judge(host *facts.Host, devices []facts.Device, ask Question) []Finding {
	var found []Finding
	hosts, each := ofHost, ofDevice
	if host.TopologyOnly {
		hosts, each = []func(look) []Finding{look.unrecorded}, []func(look) []Finding{look.unrecordedDevice}
	}
	for _, check := range hosts {
		found = append(found, check(look{host: host, ask: ask})...)
	}
	if len(devices) == 0 {
		found = append(found, Finding{
			ID: "gpu.none", Status: Fail, Evidence: "no GPU of NVIDIA, AMD or Intel is among the PCI devices",
			Remedy: "see whether the card is seated and powered; name any other device by its address", Command: "lspci -nn",
		})
	}
	for _, device := range devices {
		for _, check := range each {
			for _, f := range check(look{host: host, device: device, ask: ask}) {
				f.Device = &device.Address
				found = append(found, f)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Status), slices.Index(order, b.Status)), cmp.Compare(a.ID.rank(), b.ID.rank()))
	})
	return found
}

// Ready tells whether nothing is in the way.
func Ready(found []Finding) bool {
	return !slices.ContainsFunc(found, func(f Finding) bool { return f.Status == Fail })
}

// GPUs are the devices that are asked about where none is named: the physical functions of GPUs.
func GPUs(host *facts.Host) []facts.Device {
	var found []facts.Device
	for _, d := range host.Devices {
		if d.IsGPU() && !d.Virtual {
			found = append(found, d)
		}
	}
	return found
}

// along are the functions that are given with a device, itself first: those of its card in the same group, and what nobody else has.
func (l look) along() []facts.Device {
	all := []facts.Device{l.device}
	if l.device.Virtual {
		return all
	}
	for _, m := range facts.Endpoints(l.host.InGroup(l.device.Group)) {
		if m.Address != l.device.Address && (facts.SameSlot(m.Address, l.device.Address) || slices.Contains(forGuests, m.Driver)) {
			all = append(all, m)
		}
	}
	return all
}

// linux tells whether Linux drives the devices and its IOMMU: not under Xen, and not on ESXi.
func (l look) linux() bool { return l.ask.For != ESXi && (l.ask.For != Xen || !l.host.Xen) }

func one(id ID, status Status, evidence, remedy, command string) []Finding {
	return []Finding{{ID: id, Status: status, Evidence: evidence, Remedy: remedy, Command: command}}
}

func fine(id ID, evidence string) []Finding { return one(id, OK, evidence, "", "") }
