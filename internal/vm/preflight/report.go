package preflight

import (
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// ReportVersion is that of [Report]: as long as it stays, fields are added and none changes or goes.
const ReportVersion = 1

// Report is the answer for programs.
type Report struct {
	Version int `json:"version"`
	// Divvy is the version of the program that looked.
	Divvy string   `json:"divvy"`
	For   Platform `json:"for"`
	// Ready is true where no finding is a failure, and what they stand on is known: a recording of topology alone is never ready.
	Ready    bool      `json:"ready"`
	Findings []Finding `json:"findings"`
	Devices  []Device  `json:"devices"`
	// Needs is what the platform needs, and Unchecked what cannot be checked from here.
	Needs     []Snippet `json:"needs"`
	Unchecked []string  `json:"unchecked"`
	// Notes say what is left out of Needs, and why: the host itself needs the device.
	Notes []string `json:"notes"`
}

// Device is one that was asked about.
type Device struct {
	Address pci.Address `json:"address"`
	Vendor  uint16      `json:"vendor"`
	ID      uint16      `json:"id"`
	Model   string      `json:"model,omitempty"`
	UUID    string      `json:"uuid,omitempty"`
	Driver  string      `json:"driver,omitempty"`
	// Group is the IOMMU group, nil for none.
	Group *int   `json:"group,omitempty"`
	Forms []Form `json:"forms"`
	// Types are the types of vGPUs that it can have now.
	Types []VGPUType `json:"vgpuTypes"`
}

// Form is a way to give a device, or a part of it, to virtual machines.
type Form struct {
	Form string `json:"form"`
	// Offered is true where the device has it now.
	Offered bool   `json:"offered"`
	Why     string `json:"why"`
}

// NewReport checks a host and sums up. Its lists are never nil.
func NewReport(host *facts.Host, devices []facts.Device, ask Question, divvy string) Report {
	found := Judge(host, devices, ask)
	r := Report{
		Version: ReportVersion, Divvy: divvy, For: ask.For, Ready: Ready(found) && !host.TopologyOnly, Findings: found, Devices: []Device{},
		Needs: []Snippet{}, Unchecked: unchecked(ask.For),
	}
	for _, d := range devices {
		sum := Device{Address: d.Address, Vendor: d.Vendor, ID: d.ID, Model: d.Model, UUID: d.UUID, Driver: d.Driver, Forms: (look{host: host, device: d, ask: ask}).forms(), Types: typesOf(host, d)}
		if d.Group != facts.NoGroup {
			sum.Group = &d.Group
		}
		r.Devices = append(r.Devices, sum)
	}
	whole, notes := partOf(host, devices, ask)
	if len(whole) > 0 {
		r.Needs = needs(host, whole, ask)
	}
	for _, d := range devices {
		parts, why := look{host: host, device: d, ask: ask}.parts()
		r.Needs, notes = append(r.Needs, parts...), append(notes, why...)
	}
	r.Notes = notes
	return r
}

// forms are the ways in which a device can be given.
func forms(host *facts.Host, d facts.Device) []Form {
	if host.TopologyOnly {
		return []Form{{"passthrough", false, notRecorded}, {"vf", false, notRecorded}, {"vgpu", false, notRecorded}}
	}
	if d.Virtual {
		if d.VGPU != nil {
			return []Form{vgpuOfFunction(host, d)}
		}
		return []Form{{"vf", true, "a virtual function of " + d.Parent.String()}}
	}
	if d.IsBridge() {
		return []Form{{"passthrough", false, "it connects other devices, and is given with none of them"}}
	}
	all := []Form{{"passthrough", true, "the whole card with all functions of its IOMMU group"}}
	virtual := host.VirtualOf(d.Address)
	switch {
	case d.VFsTotal == 0:
		all = append(all, Form{"vf", false, "the device has no SR-IOV, or its driver shows none"})
	case d.Vendor == facts.NVIDIA && d.IsGPU():
		all = append(all, Form{"vf", false, "virtual functions of NVIDIA's GPUs carry vGPUs alone"})
	default:
		all = append(all, Form{"vf", len(virtual) > 0, fmt.Sprintf("%d of %d virtual functions are made", len(virtual), d.VFsTotal)})
	}
	if d.Vendor != facts.NVIDIA || !d.IsGPU() {
		return append(all, Form{"vgpu", false, "vGPUs are NVIDIA's"})
	}
	return append(all, vgpuForm(d, virtual))
}

// needsLicence ends what is said of each form that NVIDIA licenses.
const needsLicence = "; needs NVIDIA's licence"

func vgpuForm(d facts.Device, virtual []facts.Device) Form {
	var vendor, kinds int
	for _, f := range append(slices.Clone(virtual), d) {
		switch {
		case f.VGPU == nil:
		case f.VGPU.Interface == "mdev":
			return Form{"vgpu", true, fmt.Sprintf("mediated devices (mdev), %s on %s", facts.Counted(len(f.VGPU.Types), "type", "types"), f.Address) + needsLicence}
		default:
			vendor++
			kinds = max(kinds, len(f.VGPU.Types))
		}
	}
	if vendor > 0 {
		return Form{"vgpu", true, fmt.Sprintf("vendor VFIO on %s, types that can be made: %d", facts.Counted(vendor, "virtual function", "virtual functions"), kinds) + needsLicence}
	}
	if d.VFsTotal > 0 && d.VFs == 0 {
		return Form{"vgpu", false, fmt.Sprintf("no virtual functions are made, of %d; NVIDIA's host driver for vGPU makes them: divvy vm functions %s --count all", d.VFsTotal, d.Address) + needsLicence}
	}
	return Form{"vgpu", false, "the host driver offers none: that takes NVIDIA's driver for vGPU hosts" + needsLicence}
}

// vgpuOfFunction is the form of a virtual function of which its driver makes vGPUs: it has one, or can have one more.
func vgpuOfFunction(host *facts.Host, d facts.Device) Form {
	left := 0
	for _, t := range typesOf(host, d) {
		if t.Free > 0 {
			left++
		}
	}
	stays := "; the function stays on driver " + d.Driver + needsLicence
	switch {
	case !vendor(d):
		return Form{"vgpu", left > 0, fmt.Sprintf("mediated devices (mdev), types left: %d", left) + stays}
	case d.VGPU.Current != "":
		return Form{"vgpu", true, "vendor VFIO, type " + d.VGPU.Current + stays}
	case left > 0:
		return Form{"vgpu", true, fmt.Sprintf("vendor VFIO, types that can be set: %d", left) + stays}
	}
	return Form{"vgpu", false, "vendor VFIO, no type is set and none is left" + stays}
}

// unchecked is what no look at the host tells.
func unchecked(platform Platform) []string {
	all := []string{
		"whether a guest gets NVIDIA's licence for a vGPU", "the device's firmware, which a guest may have changed", "what else starts between now and the virtual machine",
		"the initramfs: which drivers are in it",
	}
	switch platform {
	case QEMU:
	case Libvirt:
		all = append(all, "libvirt itself: what it needs was held against its schema alone")
	case Proxmox:
		all = append(all, "Proxmox' own configuration: storage, rights, mappings; this was not tried on Proxmox")
	case OpenStack:
		all = append(all, "Nova: its filters, quotas and the aliases of other hosts; this was not tried with OpenStack")
	case KubeVirt:
		all = append(all, "KubeVirt's feature gates, its other nodes, and other device plugins; this was held against its types alone")
	case Xen:
		all = append(all, "Xen's view of the IOMMU", "the guest's configuration: this was not tried under Xen")
	case ESXi:
		all = append(all, "all of ESXi: its driver, its list of supported cards, what holds the device there; this was not tried on ESXi")
	}
	return all
}
