package preflight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// carriers are the functions of a device of which its driver makes vGPUs.
func (l look) carriers() []facts.Device {
	all := []facts.Device{l.device}
	if !l.device.Virtual {
		all = append(all, l.host.VirtualOf(l.device.Address)...)
	}
	return slices.DeleteFunc(all, func(d facts.Device) bool { return d.VGPU == nil })
}

// carrier is the first of them that can have one more, else the first.
func (l look) carrier() facts.Device {
	all := l.carriers()
	for _, d := range all {
		if d.VGPU.Current == "" && slices.ContainsFunc(d.VGPU.Types, func(t facts.VGPUType) bool { return t.Available != 0 }) {
			return d
		}
	}
	return all[0]
}

// barredParts says why no vGPU of the device can be given, empty where one can.
func (l look) barredParts() string {
	all := []facts.Device{l.device}
	if parent, found := l.host.Find(l.device.Parent); found && l.device.Virtual {
		all = append(all, parent)
	}
	for _, d := range all {
		function := look{host: l.host, device: d, ask: l.ask}
		f := function.failing(func(function look) []Finding {
			found := slices.Concat(function.claimed(), function.shares(), function.interrupts())
			if l.carrier().Virtual && l.carrier().Group == facts.NoGroup {
				found = append(found, function.iommu()...)
			}
			return found
		})
		if f != nil {
			return string(f.ID) + ": " + f.Evidence
		}
	}
	return ""
}

// parts is what the platform needs for a vGPU of the device, which leaves its driver for none, and why there is nothing.
func (l look) parts() (needs []Snippet, notes []string) {
	if !slices.ContainsFunc(l.forms(), func(f Form) bool { return f.Form == formVGPU && f.Offered }) {
		return nil, nil
	}
	d := l.carrier()
	w := writer{host: l.host, devices: []facts.Device{d}, given: []facts.Device{d}, ask: l.ask, part: true, ready: &Handover{Members: []pci.Address{d.Address}}}
	if vendor(d) {
		w.ready.Path = "/sys/bus/pci/devices/" + d.Address.String()
	} else {
		w.ready.Mediated = "UUID"
	}
	switch l.ask.For {
	case QEMU:
		return append(w.claim(), w.asClaimed(w.qemu())...), nil
	case Libvirt:
		return append(w.claim(), w.asClaimed(w.libvirt()...)...), nil
	case Proxmox:
		return []Snippet{{"On the Proxmox host, for a vGPU of a TYPE above", fmt.Sprintf("qm set VMID --hostpci0 %s,mdev=TYPE\n", d.Address)}}, nil
	case OpenStack:
		return w.openStackParts(l.carriers()), nil
	case KubeVirt:
		return w.byClaim(), nil
	case Xen:
		return nil, []string{fmt.Sprintf("a vGPU of %s: Xen's own tools make none; that takes XenServer with NVIDIA's vGPU manager for it", l.device.Address)}
	}
	return nil, []string{fmt.Sprintf("a vGPU of %s: it is added in vSphere as a shared PCI device, once NVIDIA's host driver for ESXi offers it; the types above are those of Linux", l.device.Address)}
}

// asClaimed says in the titles that a claim prints such a thing.
func (w writer) asClaimed(all ...Snippet) []Snippet {
	with := ", as a claim prints it with the function that it takes"
	if w.ready.Mediated != "" {
		with = ", as a claim prints it with the UUID that it draws"
	}
	for i := range all {
		all[i].Title += with
	}
	return all
}

// openStackParts has Nova make mediated devices, or give a function that has a type already.
func (w writer) openStackParts(carriers []facts.Device) []Snippet {
	d := w.devices[0]
	if !vendor(d) {
		var addresses []string
		for _, c := range carriers {
			addresses = append(addresses, c.Address.String())
		}
		return []Snippet{
			{"In nova.conf, for vGPUs of a TYPE above", "[devices]\nenabled_mdev_types = TYPE\n\n[mdev_TYPE]\ndevice_addresses = " + strings.Join(addresses, ",") + "\n"},
			{"For the flavour of vGPUs", "openstack flavor set FLAVOR --property resources:VGPU=1\n"},
		}
	}
	return []Snippet{
		{"As root, before Nova starts: a TYPE above for the function, by its number", fmt.Sprintf("echo TYPE > /sys/bus/pci/devices/%s/nvidia/current_vgpu_type\n", d.Address)},
		{"In nova.conf, for the vGPU; the alias also where the API runs", fmt.Sprintf("[pci]\ndevice_spec = {\"address\": \"%s\", \"managed\": \"no\"}\nalias = {\"vendor_id\": \"%04x\", \"product_id\": \"%04x\", \"device_type\": \"type-VF\", \"name\": \"vgpu\"}\n", d.Address, d.Vendor, d.ID)},
		{"For the flavour of vGPUs", "openstack flavor set FLAVOR --property pci_passthrough:alias=vgpu:1\n"},
	}
}
