package facts

import (
	"slices"
	"strings"
)

// Reserved tells whether the host's configuration gives devices like this one to vfio-pci at boot, and where.
func (h *Host) Reserved(d Device) (where string, reserved bool) {
	for _, name := range []string{"vfio-pci.ids", "vfio_pci.ids"} {
		if ids, _ := h.Parameter(name); lists(ids, d) {
			return "the kernel's command line (" + name + ")", true
		}
	}
	for _, rule := range h.Rules {
		fields := strings.Fields(rule)
		if fields[0] != "options" || strings.ReplaceAll(fields[1], "-", "_") != "vfio_pci" {
			continue
		}
		for _, option := range fields[2:] {
			if ids, found := strings.CutPrefix(option, "ids="); found && lists(ids, d) {
				return "modprobe.d (" + rule + ")", true
			}
		}
	}
	return "", false
}

// lists tells whether 10de:20b0,10de:1aef names a device. Further parts of an entry are subsystem and class.
func lists(ids string, d Device) bool {
	for entry := range strings.SplitSeq(strings.Trim(ids, `"`), ",") {
		parts := strings.Split(entry, ":")
		if len(parts) >= 2 && hex(parts[0]) == uint64(d.Vendor) && hex(parts[1]) == uint64(d.ID) {
			return true
		}
	}
	return false
}

// Before tells which lines of the host's configuration load one module before another: softdeps of modprobe.d, and what an initramfs of
// dracut loads before all others.
func (h *Host) Before(first, second string) (rules []string) {
	plain := func(name string) string { return strings.ReplaceAll(name, "-", "_") }
	first, second = plain(first), plain(second)
	for _, rule := range h.Rules {
		fields := strings.Fields(rule)
		if fields[0] == "softdep" && plain(fields[1]) == second && slices.ContainsFunc(earlier(fields[2:]), func(name string) bool { return plain(name) == first }) {
			rules = append(rules, rule)
		}
	}
	for _, parameter := range h.Parameters {
		name, list, _ := strings.Cut(parameter, "=")
		if name == "rd.driver.pre" && slices.ContainsFunc(strings.Split(list, ","), func(name string) bool { return plain(name) == first }) {
			rules = append(rules, parameter)
		}
	}
	return rules
}

// earlier are the modules of a softdep after "pre:".
func earlier(words []string) (names []string) {
	pre := false
	for _, word := range words {
		switch word {
		case "pre:", "post:":
			pre = word == "pre:"
		default:
			if pre {
				names = append(names, word)
			}
		}
	}
	return names
}
