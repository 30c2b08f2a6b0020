package preflight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

func (l look) virtualisation() []Finding {
	const emulated = "; without it a guest runs emulated, many times slower"
	h := l.host
	switch {
	case l.ask.For == Xen || l.ask.For == ESXi:
		return nil
	case h.KVM == facts.Yes:
		return fine("kvm", "/dev/kvm opens")
	case h.KVM == facts.Unknown:
		return one("kvm", Warn, "/dev/kvm is closed to this user"+emulated, "as root, add the user who runs virtual machines to the group of /dev/kvm", "ls -l /dev/kvm")
	case h.CPU.Virtualization == facts.No && h.CPU.Hypervisor:
		return one("cpu.virtualisation", Warn, "this machine is a virtual one, and its host gives it neither vmx nor svm"+emulated,
			"have its host allow nested virtualisation, or use a physical machine", "grep -c -w -E 'vmx|svm' /proc/cpuinfo")
	case h.CPU.Virtualization == facts.No:
		return one("cpu.virtualisation", Warn, "/proc/cpuinfo of "+h.CPU.Vendor+" has neither vmx nor svm"+emulated,
			"switch on VT-x (Intel) or SVM (AMD) in the firmware", "grep -c -w -E 'vmx|svm' /proc/cpuinfo")
	}
	module := "kvm"
	switch h.CPU.Vendor {
	case "GenuineIntel":
		module = "kvm_intel"
	case "AuthenticAMD", "HygonGenuine":
		module = "kvm_amd"
	}
	return one("kvm", Warn, "there is no /dev/kvm"+emulated, "as root, load the module", "modprobe "+module)
}

// units are what the firmware's tables stand for.
var units = map[string]string{"DMAR": "VT-d", "IVRS": "AMD-Vi", "IORT": "SMMU", "VIOT": "a virtual IOMMU"}

func (l look) iommu() []Finding {
	h := l.host
	switch {
	case l.ask.For == Xen && h.Xen:
		return one("iommu", Unknown, "Xen owns the IOMMU, and this kernel does not see it", "virt_caps must have hvm_directio", "xl info | grep virt_caps")
	case len(h.IOMMU.Units) > 0:
		return fine("iommu", strings.Join(h.IOMMU.Units, ", ")+" in /sys/class/iommu")
	case !h.IOMMU.TablesKnown:
		return one("iommu", Fail, "/sys/class/iommu is empty, and the firmware's tables are not seen below /sys/firmware/acpi/tables",
			"look on the host itself, outside of containers; VT-d, AMD-Vi or SMMU must be on in the firmware and in the kernel", "ls /sys/class/iommu /sys/firmware/acpi/tables")
	case len(h.IOMMU.Tables) == 0 && h.CPU.Hypervisor:
		return one("iommu.firmware", Fail, "this machine is a virtual one, and its firmware has no table DMAR, IVRS, IORT or VIOT",
			"have its host give it a virtual IOMMU, or use a physical machine", "ls /sys/firmware/acpi/tables")
	case len(h.IOMMU.Tables) == 0:
		return one("iommu.firmware", Fail, "the firmware has no table DMAR, IVRS, IORT or VIOT, so its IOMMU is off or missing",
			"switch on VT-d (Intel), AMD-Vi or IOMMU (AMD) or SMMU (Arm) in the firmware", "ls /sys/firmware/acpi/tables")
	case l.ask.For == ESXi:
		return fine("iommu", "the firmware has table "+strings.Join(h.IOMMU.Tables, ", "))
	}
	table := h.IOMMU.Tables[0]
	evidence := fmt.Sprintf("the firmware has %s (table %s), and /sys/class/iommu is empty", units[table], table)
	for _, off := range []string{"intel_iommu=off", "amd_iommu=off", "iommu=off", "iommu=soft"} {
		if slices.Contains(h.Parameters, off) {
			return one("iommu.kernel", Fail, evidence+": the kernel's command line has "+off, "take "+off+" out of the command line, then restart", "grep -rn "+off+" /etc/default/grub /etc/kernel")
		}
	}
	if on, _ := h.Parameter("intel_iommu"); table == "DMAR" && !slices.Contains(strings.Split(on, ","), "on") {
		return one("iommu.kernel", Fail, evidence+": the kernel's command line has no intel_iommu=on", "add intel_iommu=on to the command line, then restart",
			"sed -i 's/^GRUB_CMDLINE_LINUX=\"/&intel_iommu=on /' /etc/default/grub && update-grub")
	}
	return one("iommu.kernel", Fail, evidence, "see in the kernel's log why it does not use it", "dmesg | grep -i -E 'iommu|amd-vi|smmu'")
}

func (l look) interrupts() []Finding {
	h := l.host
	if !l.linux() || !h.Remaps() {
		return nil
	}
	switch {
	case h.IOMMU.Remapping == facts.Yes:
		return fine("interrupts", "interrupts are remapped (IR- in /proc/interrupts)")
	case h.IOMMU.Remapping == facts.Unknown:
		return one("interrupts", Unknown, "/proc/interrupts names no controller of PCI interrupts", "see in the kernel's log", "dmesg | grep -i remapping")
	case !h.Unremapped():
		return nil // vfio was told to go on all the same, which has a finding of its own
	}
	return one("interrupts", Fail, facts.NotRemapped+", and vfio refuses them", h.Remap(), "dmesg | grep -i remapping")
}

func (l look) unsafe() []Finding {
	if !l.linux() || !l.host.IOMMU.Unsafe {
		return nil
	}
	return one("iommu.unsafe", Warn, "vfio has allow_unsafe_interrupts or enable_unsafe_noiommu_mode, so a guest can reach the host's memory or forge its interrupts",
		"take the option out of modprobe.d, unless every guest is trusted as the host is", "grep -rn unsafe /etc/modprobe.d")
}

func (l look) override() []Finding {
	value, there := l.host.Parameter("pcie_acs_override")
	if !l.linux() || !there {
		return nil
	}
	return one("acs.override", Warn, "pcie_acs_override="+value+": the kernel shows smaller IOMMU groups than the ports keep apart",
		"the price is isolation: devices in different groups can still reach each other's memory, so a guest can reach another one or the host; take it away before tenants come who are not trusted", "cat /proc/cmdline")
}

func (l look) modules() []Finding {
	h := l.host
	if !l.linux() || l.ask.For == Xen {
		return nil
	}
	m := h.Modules["vfio_pci"]
	switch {
	case m.Loaded:
		return fine("modules", "vfio-pci is "+map[bool]string{true: "built in", false: "loaded"}[m.Builtin])
	case m.Available:
		return fine("modules", "vfio-pci can be loaded")
	case !h.ModulesKnown:
		return one("modules", Unknown, "the modules of kernel "+h.Kernel+" are not seen below /lib/modules", "look on the host itself, outside of containers", "modprobe -n vfio-pci")
	}
	return one("modules", Fail, "kernel "+h.Kernel+" has no module vfio-pci", "install the distribution's further modules for this kernel, such as linux-modules-extra", "modprobe -n vfio-pci")
}

func (l look) secureBoot() []Finding {
	h := l.host
	if !l.linux() || h.SecureBoot != facts.Yes && (h.Lockdown == "" || h.Lockdown == "none") {
		return nil
	}
	lockdown := h.Lockdown
	if lockdown == "" {
		lockdown = "unknown"
	}
	boot := map[facts.Answer]string{facts.Yes: "on", facts.No: "off", facts.Unknown: "unknown"}[h.SecureBoot]
	return fine("secureboot", fmt.Sprintf("secure boot is %s, lockdown %s: modules that are not signed, such as NVIDIA's host driver built here, do not load; vfio-pci of the distribution does", boot, lockdown))
}

func (l look) memory() []Finding {
	h, want := l.host, l.ask.Memory
	switch {
	case !l.linux():
		return nil
	case want > 0 && h.Memory.Total > 0 && want > h.Memory.Total:
		return one("memory", Fail, fmt.Sprintf("the guest wants %s, and the machine has %s: all memory of a guest with a device is pinned", size(want), size(h.Memory.Total)),
			"give the guest less memory", "free -h")
	}
	return append(l.locked(), l.hugePages()...)
}

// locked compares the limit of who asks. Other platforms set the limit for their virtual machines themselves.
func (l look) locked() []Finding {
	const little = 64 << 20
	h, want := l.host, l.ask.Memory
	if l.ask.For != QEMU {
		return nil
	}
	const saying = "; QEMU would only say: Cannot allocate memory"
	remedy := "raise it to the guest's memory and some more, once for each device where the guest has a virtual IOMMU"
	switch {
	case h.Locked == facts.Unlimited:
		return fine("memlock", "this user's programs may lock all memory")
	case want > 0 && h.Locked < want:
		return one("memlock", Fail, fmt.Sprintf("programs may lock %s, and the guest has %s, all of which is pinned%s", size(h.Locked), size(want), saying), remedy,
			fmt.Sprintf("prlimit --pid $$ --memlock=%d", want+want/8))
	case want == 0 && h.Locked < little:
		return one("memlock", Warn, "programs may lock "+size(h.Locked)+", and all memory of a guest with a device is pinned"+saying, remedy, "ulimit -l")
	}
	return fine("memlock", "programs may lock "+size(h.Locked))
}

func (l look) hugePages() []Finding {
	want := l.ask.Memory
	var parts []string
	for _, pages := range l.host.Memory.Huge {
		switch {
		case want == 0 || pages.Count == 0:
		case pages.Free >= (want+pages.Size-1)/pages.Size:
			return nil // the guest takes its pages from one size alone
		default:
			parts = append(parts, fmt.Sprintf("%d of %d huge pages of %s are free", pages.Free, pages.Count, size(pages.Size)))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return one("hugepages", Warn, strings.Join(parts, ", ")+", and the guest wants "+size(want),
		"reserve more at boot, or let the guest have ordinary pages", "grep -H . /sys/kernel/mm/hugepages/*/free_hugepages")
}

func (l look) unseen() []Finding {
	var found []Finding
	if why := l.ask.Own.Unknown; why != "" {
		found = one("unseen", Unknown, "what Divvy gave to virtual machines is not known: "+why, "look as root, or start the agent", "divvy vm ls")
	}
	for _, why := range l.host.Blind {
		found = append(found, one("unseen", Unknown, why, "look as root of the machine itself, outside of containers", "")...)
	}
	if unread := l.host.Unread; len(unread) > 0 {
		more := ""
		if len(unread) > 3 {
			more = fmt.Sprintf(" and %d more", len(unread)-3)
		}
		found = append(found, one("unseen", Unknown, "may not be read: /"+strings.Join(unread[:min(3, len(unread))], ", /")+more, "look as root of the machine itself, outside of containers", "")...)
	}
	return found
}

// size writes an amount of memory in the largest unit of which it has at least one.
func size(bytes int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	value, unit := float64(bytes), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0") + " " + units[unit]
}
