package preflight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// forGuests are the drivers that give devices to virtual machines, or to nobody else.
var forGuests = []string{"", "vfio-pci", "nvgrace_gpu_vfio_pci", "pciback", "xen-pciback", "pci-stub"}

func (l look) group() []Finding {
	d := l.device
	switch {
	case len(d.Uses) == 0 && !l.linux() && (l.ask.For != ESXi || d.Group == facts.NoGroup):
		return nil
	case d.Group == facts.NoGroup:
		return l.ungrouped()
	}
	members := l.host.InGroup(d.Group)
	if found := l.used(members); found != nil {
		return found
	}
	var others []facts.Device
	for _, m := range members {
		if !m.IsBridge() && !l.takes(m) && !slices.Contains(forGuests, m.Driver) {
			others = append(others, m)
		}
	}
	usb := len(others) > 0 && l.allUSB(others)
	switch {
	case l.ask.For == ESXi && !usb:
		return nil // it has groups of its own
	case len(others) == 0:
		return fine("group", fmt.Sprintf("group %d has %s", d.Group, named(facts.Endpoints(members))))
	}
	return l.shared(others, usb)
}

// takes tells whether a device of the group is itself, or goes along as a function of its card.
func (l look) takes(m facts.Device) bool {
	return m.Address == l.device.Address || !l.device.Virtual && facts.SameSlot(m.Address, l.device.Address)
}

// used tells of what the host uses in the device's group.
func (l look) used(members []facts.Device) []Finding {
	for _, m := range members {
		if len(m.Uses) > 0 {
			evidence := fmt.Sprintf("group %d has %s, which the host uses: %s", l.device.Group, describe(m), uses(m.Uses))
			if m.Address == l.device.Address || facts.SameSlot(m.Address, l.device.Address) {
				return one("group.used", Fail, evidence, l.moved(m), "lspci -k -s "+m.Address.String())
			}
			return one("group.used", Fail, evidence, "move the card to another slot, or what the host uses to another device; "+l.apart(), l.membersShown())
		}
		if what, takeDown := m.Network(); what != "" && l.linux() {
			return one("group.used", Fail, fmt.Sprintf("group %d has %s, which the host uses: %s", l.device.Group, describe(m), what),
				"where the host does not need it, take it down; else another slot or another card", takeDown)
		}
	}
	return nil
}

// moved says what helps where the host uses the card itself: no slot and no smaller group does.
func (l look) moved(used facts.Device) string {
	to := "move what the host uses to another device"
	if used.Uses[0].Kind == "route" {
		to = "have the default route lead through another network card"
	}
	return to + ", or give another card: another slot does not help, because it is this card that the host uses"
}

// membersShown is what shows the members of the device's group.
func (l look) membersShown() string {
	return fmt.Sprintf("ls /sys/kernel/iommu_groups/%d/devices", l.device.Group)
}

// shared tells of other cards in the group, and what is on them. What is in use is not advised to go.
func (l look) shared(others []facts.Device, usb bool) []Finding {
	_, inUse := busy(others)
	told := func(text string) string { return strings.Join(append([]string{text + named(others)}, inUse...), "; ") }
	if usb {
		return one("usb.all", Fail, told(fmt.Sprintf("group %d has every USB controller of the host: ", l.device.Group)),
			"giving the group takes keyboard and console away: give single USB devices by QEMU's usb-host instead, log in by network, or add a USB card in a group of its own", l.membersShown())
	}
	remedy := "move the card to a slot with a group of its own, or give these devices away as well, all by one claim: `" + l.withAlso(others) + "`; "
	switch {
	case len(inUse) > 0:
		remedy = "move the card to a slot with a group of its own: of these devices some are in use; "
	case l.device.Virtual:
		remedy = "move the card to another slot, or have nobody use these devices: a claim of a virtual function takes no other with it; "
	}
	return one("group.shared", Fail, told(fmt.Sprintf("group %d also has ", l.device.Group)), remedy+l.apart(), l.membersShown())
}

// withAlso is the claim of the device which lets each of the other cards of its group go too.
func (l look) withAlso(others []facts.Device) string {
	claim := fmt.Sprintf("divvy vm claim --pci %s --form passthrough", l.device.Address)
	for i, o := range others {
		if !slices.ContainsFunc(others[:i], func(before facts.Device) bool { return facts.SameSlot(before.Address, o.Address) }) {
			claim += " --also " + o.Address.String()
		}
	}
	return claim
}

// ungrouped judges a device that is in no group.
func (l look) ungrouped() []Finding {
	d := l.device
	switch {
	case len(d.Uses) > 0:
		return one("group.used", Fail, "the host uses "+describe(d)+": "+uses(d.Uses), l.moved(d), "lspci -k -s "+d.Address.String())
	case len(l.host.IOMMU.Units) == 0:
		return nil // the IOMMU's own finding says it
	}
	return one("group.none", Fail, d.Address.String()+" is in no IOMMU group", "see in the kernel's log why its IOMMU does not cover it", "dmesg | grep -i -E 'iommu|dmar'")
}

// allUSB tells whether all that is in the way are the host's only USB controllers.
func (l look) allUSB(others []facts.Device) bool {
	usb := func(d facts.Device) bool { return d.Class>>8 == 0x0c03 }
	if slices.ContainsFunc(others, func(d facts.Device) bool { return !usb(d) }) {
		return false
	}
	return !slices.ContainsFunc(l.host.Devices, func(d facts.Device) bool { return usb(d) && d.Group != l.device.Group })
}

// apart says which ports above the device do not keep it apart, and what an override of that costs.
func (l look) apart() string {
	const price = "pcie_acs_override would only split the groups on paper: the devices could still reach each other's memory, so it is for guests that are trusted as the host is"
	var lacking, unread []string
	for _, at := range l.device.Bridges {
		port, found := l.host.Find(at)
		switch {
		case !found || port.Port == nil:
		case !port.Port.Readable:
			unread = append(unread, at.String())
		case !port.Port.HasACS:
			lacking = append(lacking, "port "+at.String()+" has no ACS")
		case !port.Port.Apart:
			lacking = append(lacking, "port "+at.String()+" has ACS, switched off")
		}
	}
	switch {
	case len(lacking) > 0:
		return strings.Join(lacking, ", ") + ": look for an option ACS in the firmware; " + price
	case len(unread) > 0:
		return "which port lacks ACS only root can read (" + strings.Join(unread, ", ") + "); " + price
	}
	return price
}

// named names devices with their drivers, of many the first.
func named(all []facts.Device) string {
	const most = 5
	var parts []string
	for _, d := range all[:min(len(all), most)] {
		parts = append(parts, describe(d))
	}
	if more := len(all) - most; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, ", ")
}

// describe names a device with what it is and its driver.
func describe(d facts.Device) string {
	kind := map[uint32]string{0x0108: "NVMe disk", 0x0106: "SATA controller", 0x0104: "RAID controller", 0x0107: "SAS controller", 0x0200: "network card", 0x0207: "InfiniBand card", 0x0403: "audio", 0x0c03: "USB controller", 0x0c80: "USB type C controller"}[d.Class>>8]
	switch {
	case d.IsGPU():
		kind = "GPU"
	case kind == "":
		kind = fmt.Sprintf("%04x:%04x", d.Vendor, d.ID)
	}
	if d.Driver == "" {
		return d.Address.String() + " (" + kind + ")"
	}
	return d.Address.String() + " (" + kind + ", " + d.Driver + ")"
}

func uses(all []facts.Use) string {
	var parts []string
	for _, u := range all {
		parts = append(parts, u.String())
	}
	return strings.Join(parts, ", ")
}
