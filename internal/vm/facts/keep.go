package facts

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/vgpu"
)

// Keep is the part of a file that a recording of a machine needs so that [Read] finds the same again, and whether it needs any.
// What identifies the machine or may be secret is left out. The name is from the root, without a leading slash.
func Keep(name, content string) (kept string, wanted bool) {
	if path.Base(path.Dir(name)) == "gids" {
		kept = keptGID(content)
		return kept, kept != ""
	}
	for _, k := range keepers {
		if path.Dir(name) == k.folder || strings.HasPrefix(name, k.folder+"/") && k.below {
			if base := path.Base(name); k.file == "" || k.file == base {
				kept = k.keep(content)
				return kept, kept != ""
			}
		}
	}
	return content, true
}

// keeper says what is kept of files in a folder, and also of those in folders below it. A file of "" means any.
type keeper struct {
	folder string
	below  bool
	file   string
	keep   func(content string) string
}

// keepers are those of files of which not all is kept. The first that fits counts.
var keepers = []keeper{
	{"proc", false, "cmdline", func(content string) string { return strings.Join(parametersOf(content), " ") + "\n" }},
	{"proc", false, "cpuinfo", keptCPU},
	{"proc", false, "interrupts", eachLine(keptController)},
	{"proc", false, "meminfo", eachLine(fieldOnly("MemTotal"))},
	{"proc", false, "swaps", eachLine(beginsWith("/dev/"))},
	{"proc/self", false, "status", eachLine(fieldOnly("CapEff"))},
	{"proc/self", false, "limits", eachLine(beginsWith("Max locked memory"))},
	{"proc/driver/nvidia", true, "information", eachLine(fieldOnly("Model", "GPU UUID", "Device Minor"))},
	{"proc/driver/nvidia", false, "version", func(content string) string {
		line, _, _ := strings.Cut(content, "\n")
		line, _, _ = strings.Cut(line, "(") // who built it, and where
		return strings.TrimSpace(line) + "\n"
	}},
	{"proc", false, "cgroups", keptControllers},
	{"proc", true, "mountinfo", eachLine(keptMount)},
	{"proc", true, "route", eachLine(keptRoute)},
	{"proc", true, "ipv6_route", eachLine(keptRoute)},
	{"proc", true, "dev", eachLine(keptName)},
	{"proc", true, "dev_mcast", eachLine(keptShared)},
	{"proc", true, "if_inet6", eachLine(keptAddress)},
	{"proc", true, "cgroup", keptGroups},
	{"lib/modules", true, "", eachLine(keptModule)},
	{"etc/modprobe.d", false, "", keptRules},
	{"run/modprobe.d", false, "", keptRules},
	{"usr/lib/modprobe.d", false, "", keptRules},
	{"usr/share/nvidia", true, "", eachLine(beginsWith("FABRIC_MODE="))},
	{"etc/nvidia-fabricmanager", false, "", eachLine(beginsWith("FABRIC_MODE="))},
	{"sys/bus/usb/devices", true, "product", func(string) string { return "" }}, // people name their telephones
	{"sys/dev/char", true, "uevent", eachLine(beginsWith("DEVNAME="))},
	{"sys/dev/block", true, "uevent", eachLine(beginsWith("DEVNAME="))},
	{"sys/devices/virtual/block", true, "backing_file", eachLine(beginsWith("/dev/"))}, // others name people's files
	{"sys/devices", true, "config", func(content string) string { return string(keptConfig([]byte(content))) }},
	{"sys/devices", true, "resource", keptResource},
	{"sys/devices", true, "description", func(content string) string {
		if most := vgpu.MostOf(content); most > 0 {
			return fmt.Sprintf("max_instance=%d\n", most)
		}
		return ""
	}},
}

// eachLine keeps what a function keeps of each line, each once.
func eachLine(keep func(line string) string) func(content string) string {
	return func(content string) string {
		var kept []string
		for line := range strings.Lines(content) {
			if line = keep(strings.TrimRight(line, "\n")); line != "" && !slices.Contains(kept, line) {
				kept = append(kept, line)
			}
		}
		if len(kept) == 0 {
			return ""
		}
		return strings.Join(kept, "\n") + "\n"
	}
}

// fieldOnly keeps lines "NAME : value" of these names.
func fieldOnly(names ...string) func(line string) string {
	return func(line string) string {
		if name, _, _ := strings.Cut(line, ":"); slices.Contains(names, strings.TrimSpace(name)) {
			return line
		}
		return ""
	}
}

func beginsWith(text string) func(line string) string {
	return func(line string) string {
		if strings.HasPrefix(line, text) {
			return line
		}
		return ""
	}
}

// keptModule is a module of interest, without those that it needs.
func keptModule(line string) string {
	if moduleOf(line) == "" {
		return ""
	}
	file, _, needs := strings.Cut(line, ":")
	if needs {
		file += ":"
	}
	return file
}

func keptRules(content string) string {
	rules := rulesOf(content)
	if len(rules) == 0 {
		return ""
	}
	return strings.Join(rules, "\n") + "\n"
}

// KeepLink tells whether a recording needs a link: of the many device nodes those of PCI functions, and of what processes have
// open the device nodes that can be of one.
func KeepLink(name, target string) bool {
	switch {
	case strings.HasPrefix(name, "sys/dev/block/") && strings.Contains(target, "/nvme-subsystem/"):
		return true
	case strings.HasPrefix(name, "sys/dev/char/"), strings.HasPrefix(name, "sys/dev/block/"):
		return slices.ContainsFunc(strings.Split(target, "/"), func(part string) bool {
			_, err := pci.ParseAddress(part)
			return err == nil
		})
	case strings.HasPrefix(name, "proc/") && path.Base(path.Dir(name)) == "fd":
		return slices.ContainsFunc([]string{"nvidia", "vfio/", "dri/", "infiniband/", "fb", "nvme", "sd", "vd", "snd/", "input/"}, func(node string) bool {
			return strings.HasPrefix(target, "/dev/"+node)
		})
	}
	return true
}

// keptCPU is what is read of the first processor, with the flags that count.
func keptCPU(content string) string {
	text, _, _ := strings.Cut(content, "\n\n")
	var flags []string
	for flag := range strings.FieldsSeq(field(text, "flags")) {
		if slices.Contains([]string{"vmx", "svm", "hypervisor"}, flag) {
			flags = append(flags, flag)
		}
	}
	return "vendor_id\t: " + field(text, "vendor_id") + "\nflags\t\t: " + strings.Join(flags, " ") + "\naddress sizes\t: " + field(text, "address sizes") + "\n"
}

// keptController is the name of a line's interrupt controller, without counts and numbers.
func keptController(line string) string {
	for word := range strings.FieldsSeq(line) {
		for _, name := range []string{"IR-PCI-MSI", "IR-IO-APIC", "PCI-MSI", "IO-APIC"} {
			if strings.HasPrefix(word, name) {
				return name
			}
		}
	}
	return ""
}

// keptMount is a mount of a disk, or one of processes that hides some, with a name for each place that is not one of the system's.
func keptMount(line string) string {
	if at, hides := procMount(line); hides && at == "/proc" {
		return "0 0 0:0 / /proc rw - proc none rw,hidepid=invisible"
	}
	number, at, source, pool := mountOf(line)
	if number == "" && source == "" && !pool {
		return ""
	}
	if !slices.Contains([]string{"/", "/boot", "/boot/efi", "/home", "/var", "/var/lib", "/usr", "/opt", "/srv"}, at) {
		at = "/elsewhere"
	}
	if number == "" {
		number = "0:0"
	}
	kind, device := "any", "none"
	if pool {
		kind = "zfs"
	}
	if source != "" {
		device = "/dev/" + source
	}
	return "0 0 " + number + " / " + at + " rw - " + kind + " " + device + " rw"
}

// keptAddress is that a network device has an address, and not which.
func keptAddress(line string) string {
	name := addressed(strings.Fields(line))
	if name == "" {
		return ""
	}
	return strings.Repeat("0", 32) + " 00 00 00 80 " + name
}

// keptRoute is a default route without the address of its gateway, or that a network device has another route, and not where to.
func keptRoute(line string) string {
	f := strings.Fields(line)
	switch {
	case isDefault(f):
		return f[0] + "\t00000000\t00000000\t0003\t0\t0\t0\t00000000\t0\t0\t0"
	case len(f) == 10 && f[0] == strings.Repeat("0", 32) && f[1] == "00" && f[9] != "lo":
		zero := strings.Repeat("0", 32)
		return zero + " 00 " + zero + " 00 " + zero + " 00000000 00000000 00000000 00000003 " + f[9]
	}
	if name := routed(f); name != "" {
		return name + "\t00000001\t00000000\t0001\t0\t0\t0\tFFFFFFFF\t0\t0\t0"
	}
	return ""
}

// keptGroups is a process's cgroup with nothing but its container's id, of which only the beginning is shown.
func keptGroups(groups string) string {
	id := containerOf(groups)
	if id == "" {
		return "0::/\n"
	}
	return "0::/" + id + strings.Repeat("0", 64-len(id)) + "\n"
}

// keptResource are the lines of the first six regions, without those at the end that have none.
func keptResource(text string) string {
	all := strings.SplitAfter(text, "\n")
	all = all[:min(len(all), 6)]
	for len(all) > 0 && len(bars(all[len(all)-1])) == 0 {
		all = all[:len(all)-1]
	}
	return strings.Join(all, "")
}
