package facts

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/sysfs"
)

// Read takes a snapshot of the machine whose root is given. A file that is missing, or vanishes, is a fact that is not known.
// Only a sysfs that cannot be listed is an error. Disks of which no use is seen are opened for a moment, see [Look].
func Read(root fs.FS) (*Host, error) { return snapshot(root, true) }

// Look is [Read] without opening disks: for that moment who wants a disk for himself alone cannot have it. So it is for looks that
// are repeated, and a disk that is mounted in a container only may seem free to it.
func Look(root fs.FS) (*Host, error) { return snapshot(root, false) }

func snapshot(root fs.FS, open bool) (*Host, error) {
	sys, err := fs.Sub(root, "sys")
	if err != nil {
		return nil, fmt.Errorf("read the host's facts: %w", err)
	}
	r := &reader{root: root, sys: sys, host: &Host{Modules: map[string]Module{}, Locked: Unlimited}}
	r.kernel()
	r.cpu()
	r.iommu()
	r.modules()
	r.unsafe()
	r.memory()
	r.security()
	if err := r.devices(); err != nil {
		return nil, err
	}
	r.disks()
	r.routes()
	r.framebuffers()
	r.attached()
	r.holders()
	if open {
		r.alone()
	}
	slices.Sort(r.host.Unread)
	r.host.Unread = slices.Compact(r.host.Unread)
	return r.host, nil
}

// ReadUsed takes the part of a snapshot that tells which devices there are and what the host does with them. It opens no process's
// files, so it can be taken again and again.
func ReadUsed(root fs.FS) (*Host, error) {
	sys, err := fs.Sub(root, "sys")
	if err != nil {
		return nil, fmt.Errorf("read the host's devices: %w", err)
	}
	r := &reader{root: root, sys: sys, host: &Host{Modules: map[string]Module{}, Locked: Unlimited}}
	if err := r.devices(); err != nil {
		return nil, err
	}
	r.disks()
	r.routes()
	return r.host, nil
}

// ReadIOMMU takes the part of a snapshot that tells of the IOMMU and of the remapping of interrupts.
func ReadIOMMU(root fs.FS) *Host {
	r := &reader{root: root, host: &Host{Modules: map[string]Module{}, Locked: Unlimited}}
	r.kernel()
	r.iommu()
	r.modules()
	r.unsafe()
	return r.host
}

// reader reads one host. Its functions fill in what they find.
type reader struct {
	root, sys fs.FS
	host      *Host
	cut       []Holder // who was not looked through in time
}

// text reads a file from the root. It is "" where there is none.
func (r *reader) text(name string) string {
	content, err := fs.ReadFile(r.root, name)
	if errors.Is(err, fs.ErrPermission) || sysfs.IsLate(err) {
		r.host.Unread = append(r.host.Unread, name)
	}
	if err != nil {
		return ""
	}
	return string(content)
}

// line reads a file's only line.
func (r *reader) line(name string) string { return strings.TrimSpace(r.text(name)) }

// list names what is in a folder, sorted; nothing where it cannot be read.
func (r *reader) list(folder string) []string { return sysfs.Names(r.root, folder) }

// there tells whether something has a name, without following links.
func (r *reader) there(name string) bool { return sysfs.There(r.root, name) }

// target is the last part of where a link leads, "" for no link.
func (r *reader) target(name string) string { return sysfs.Target(r.root, name) }

// number reads a decimal number that is not negative, 0 where there is none.
func (r *reader) number(name string) int64 {
	value, err := strconv.ParseInt(r.line(name), 10, 64)
	if err != nil || value < 0 {
		return 0
	}
	return value
}

func (r *reader) kernel() {
	r.host.Kernel = r.line("proc/sys/kernel/osrelease")
	r.host.Parameters = parametersOf(r.text("proc/cmdline"))
	r.host.Xen = r.line("sys/hypervisor/type") == "xen"
	for _, name := range []string{"usr/share/nvidia/nvswitch/fabricmanager.cfg", "etc/nvidia-fabricmanager/fabricmanager.cfg"} {
		for line := range strings.Lines(r.text(name)) {
			if mode, found := strings.CutPrefix(strings.TrimSpace(line), "FABRIC_MODE="); found && r.host.FabricMode == "" {
				r.host.FabricMode = mode
			}
		}
	}
}

func (r *reader) cpu() {
	text := r.text("proc/cpuinfo")
	cpu := CPU{Vendor: field(text, "vendor_id")}
	flags := strings.Fields(field(text, "flags"))
	cpu.Hypervisor = slices.Contains(flags, "hypervisor")
	switch {
	case slices.Contains(flags, "vmx"), slices.Contains(flags, "svm"):
		cpu.Virtualization = Yes
	case slices.Contains([]string{"GenuineIntel", "AuthenticAMD", "HygonGenuine"}, cpu.Vendor):
		cpu.Virtualization = No
	}
	bits, _, _ := strings.Cut(field(text, "address sizes"), " bits physical")
	if value, err := strconv.Atoi(bits); err == nil && value > 0 && value <= 64 {
		cpu.AddressBits = value
	}
	r.host.CPU = cpu
	switch file, err := r.root.Open("dev/kvm"); {
	case err == nil:
		_ = file.Close() // only to see whether it opens
		r.host.KVM = Yes
		r.there("dev/kvm") // so that a recording has it
	case errors.Is(err, fs.ErrPermission):
		r.host.KVM = Unknown
	default:
		r.host.KVM = No
	}
}

// field is what the first line "NAME : value" has.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		before, after, found := strings.Cut(line, ":")
		if found && strings.TrimSpace(before) == name {
			return strings.TrimSpace(after)
		}
	}
	return ""
}

// firmwareTables are those that describe IOMMUs, and one that every firmware with ACPI has.
var firmwareTables = []string{"DMAR", "IVRS", "IORT", "VIOT"}

const anyTable = "FACP"

func (r *reader) iommu() {
	units := r.list("sys/class/iommu")
	for _, unit := range units {
		if r.there("sys/class/iommu/" + unit) {
			r.host.IOMMU.Units = append(r.host.IOMMU.Units, unit)
		}
	}
	for _, table := range append([]string{anyTable}, firmwareTables...) {
		if !r.there("sys/firmware/acpi/tables/" + table) {
			continue
		}
		r.host.IOMMU.TablesKnown = true
		if table != anyTable {
			r.host.IOMMU.Tables = append(r.host.IOMMU.Tables, table)
		}
	}
	r.host.IOMMU.Remapping = remapping(r.text("proc/interrupts"))
}

func (r *reader) memory() {
	total, _, _ := strings.Cut(field(r.text("proc/meminfo"), "MemTotal"), " ")
	if kib, err := strconv.ParseInt(total, 10, 64); err == nil && kib > 0 && kib < 1<<50 {
		r.host.Memory.Total = kib << 10
	}
	const folder = "sys/kernel/mm/hugepages"
	for _, name := range r.list(folder) {
		digits, found := strings.CutPrefix(name, "hugepages-")
		kib, err := strconv.ParseInt(strings.TrimSuffix(digits, "kB"), 10, 64)
		if !found || err != nil || kib <= 0 || kib > 1<<40 {
			continue
		}
		r.host.Memory.Huge = append(r.host.Memory.Huge, HugePages{
			Size: kib << 10, Count: r.number(path.Join(folder, name, "nr_hugepages")), Free: r.number(path.Join(folder, name, "free_hugepages")),
		})
	}
	slices.SortFunc(r.host.Memory.Huge, func(a, b HugePages) int { return int((a.Size - b.Size) >> 10) })
	r.host.Locked = locked(r.text("proc/self/limits"), r.text("proc/self/status"))
}

// locked is how much memory a process may lock. CAP_IPC_LOCK lifts the limit.
func locked(limits, status string) int64 {
	const ipcLock = 14
	if caps, err := strconv.ParseUint(field(status, "CapEff"), 16, 64); err == nil && caps>>ipcLock&1 == 1 {
		return Unlimited
	}
	for line := range strings.Lines(limits) {
		rest, found := strings.CutPrefix(line, "Max locked memory")
		if !found {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			return Unlimited
		}
		if value, err := strconv.ParseInt(fields[0], 10, 64); err == nil && value >= 0 {
			return value
		}
	}
	return Unlimited
}

func (r *reader) security() {
	_, rest, _ := strings.Cut(r.line("sys/kernel/security/lockdown"), "[")
	r.host.Lockdown, _, _ = strings.Cut(rest, "]")
	// Four bytes of attributes come before the variable's one byte.
	if variable := r.text("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"); len(variable) == 5 {
		r.host.SecureBoot = map[bool]Answer{true: Yes, false: No}[variable[4] == 1]
	}
}
