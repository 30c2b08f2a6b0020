package facts

import (
	"slices"
	"strings"
)

// remapping looks at the names of interrupt controllers. Those of devices begin with IR- where interrupts are remapped.
func remapping(interrupts string) Answer {
	answer := Unknown
	for word := range strings.FieldsSeq(interrupts) {
		switch {
		case strings.HasPrefix(word, "IR-"):
			return Yes
		case strings.HasPrefix(word, "PCI-MSI"), word == "IO-APIC":
			answer = No
		}
	}
	return answer
}

// unsafe tells whether vfio was told to go on without protection: by its parameters, or by what they will be once it is loaded.
func (r *reader) unsafe() {
	const parameters = "sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"
	iommu := &r.host.IOMMU
	switch r.line(parameters) {
	case "Y":
		iommu.UnsafeInterrupts = true
	case "":
		iommu.UnsafeInterrupts = !r.host.Modules["vfio_iommu_type1"].Loaded && r.host.unsafeOnceLoaded()
	}
	iommu.Unsafe = iommu.UnsafeInterrupts || r.line("sys/module/vfio/parameters/enable_unsafe_noiommu_mode") == "Y"
}

// unsafeOnceLoaded tells whether the module takes interrupts that are not remapped by what the command line and modprobe.d say.
func (h *Host) unsafeOnceLoaded() bool {
	on := []string{"1", "y", "Y", "on"}
	value, there := h.Parameter("vfio_iommu_type1.allow_unsafe_interrupts")
	if there {
		return slices.Contains(on, value)
	}
	said := false
	for _, rule := range h.Rules {
		fields := strings.Fields(rule)
		if fields[0] != "options" || strings.ReplaceAll(fields[1], "-", "_") != "vfio_iommu_type1" {
			continue
		}
		for _, option := range fields[2:] {
			if value, is := strings.CutPrefix(option, "allow_unsafe_interrupts="); is {
				said = slices.Contains(on, value)
			}
		}
	}
	return said
}

// NotRemapped is how it is seen that interrupts of devices are not remapped.
const NotRemapped = "no controller in /proc/interrupts begins with IR-, so interrupts of devices are not remapped"

// Remaps tells whether the host has an IOMMU of a kind that remaps interrupts as well, which Arm's does not.
func (h *Host) Remaps() bool {
	return slices.ContainsFunc(h.IOMMU.Units, func(unit string) bool {
		return strings.HasPrefix(unit, "dmar") || strings.HasPrefix(unit, "ivhd")
	}) || len(h.IOMMU.Units) > 0 && slices.ContainsFunc(h.IOMMU.Tables, func(t string) bool { return t == "DMAR" || t == "IVRS" })
}

// Unremapped tells whether vfio refuses every device because interrupts are not remapped: a guest could forge those of the host.
func (h *Host) Unremapped() bool {
	return h.Remaps() && h.IOMMU.Remapping == No && !h.IOMMU.UnsafeInterrupts
}

// Remap says what helps then.
func (h *Host) Remap() string {
	for _, off := range []string{"intremap=off", "nointremap"} {
		if slices.Contains(h.Parameters, off) {
			return "take " + off + " out of the kernel's command line, then restart"
		}
	}
	return "update the firmware, or switch on x2APIC and interrupt remapping there; vfio's allow_unsafe_interrupts would let a guest forge interrupts of the host"
}
