package facts

import (
	"path"
	"slices"
	"strings"
)

// moduleNames are the modules of the kernel that concern devices for virtual machines, and those of RDMA cards.
var moduleNames = []string{
	"amdgpu", "bnxt_en", "bnxt_re", "efa", "ib_core", "ib_uverbs", "ice", "iommufd", "irdma", "kvm_amd", "kvm_intel", "mdev", "mlx4_core", "mlx4_ib", "mlx5_core", "mlx5_ib", "nouveau", "nova_core", "nvgrace_gpu_vfio_pci", "nvidia", "nvidia_drm",
	"nvidia_peermem", "nvidia_vgpu_vfio", "nvidiafb", "rdma_cm", "rdma_rxe", "rdma_ucm", "simpledrm", "vfio", "vfio_iommu_type1", "vfio_pci", "xe",
}

func (r *reader) modules() {
	for _, name := range moduleNames {
		if r.there("sys/module/" + name) {
			r.host.Modules[name] = Module{Loaded: true, Available: true, Foreign: strings.Contains(r.line("sys/module/"+name+"/taint"), "O")}
		}
	}
	if kernel := r.host.Kernel; kernel != "" && kernel == path.Base(kernel) {
		for name := range modulesIn(r.text("lib/modules/" + kernel + "/modules.builtin")) {
			r.host.Modules[name] = Module{Loaded: true, Builtin: true, Available: true}
		}
		loadable := r.text("lib/modules/" + kernel + "/modules.dep")
		r.host.ModulesKnown = loadable != ""
		for name, file := range modulesIn(loadable) {
			m := r.host.Modules[name]
			m.Available, m.File = true, file
			r.host.Modules[name] = m
		}
	}
	for _, folder := range []string{"etc/modprobe.d", "run/modprobe.d", "usr/lib/modprobe.d"} {
		for _, name := range r.list(folder) {
			if strings.HasSuffix(name, ".conf") {
				r.host.Rules = append(r.host.Rules, rulesOf(r.text(path.Join(folder, name)))...)
			}
		}
	}
}

// modulesIn are the modules of interest in a list of files such as kernel/drivers/vfio/pci/vfio-pci.ko.xz, each with its file.
func modulesIn(list string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(list) {
		if name := moduleOf(line); name != "" {
			found[name], _, _ = strings.Cut(strings.TrimSpace(line), ":")
		}
	}
	return found
}

// moduleOf is the module of interest that a line of such a list begins with, or "".
func moduleOf(line string) string {
	file, _, _ := strings.Cut(strings.TrimSpace(line), ":")
	name, _, found := strings.Cut(path.Base(file), ".ko")
	name = strings.ReplaceAll(name, "-", "_")
	if !found || !slices.Contains(moduleNames, name) {
		return ""
	}
	return name
}

// rulesOf are the lines of a modprobe.d file that name a module of interest.
func rulesOf(text string) []string {
	var rules []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if slices.ContainsFunc(fields[1:], func(f string) bool {
			return slices.Contains(moduleNames, strings.ReplaceAll(f, "-", "_"))
		}) {
			rules = append(rules, strings.Join(fields, " "))
		}
	}
	return rules
}

// parameterNames begin the parameters of the kernel's command line that are kept; all others, which may hold secrets, are not.
var parameterNames = []string{
	"amd_iommu", "default_hugepagesz", "efi", "hugepages", "hugepagesz", "initcall_blacklist", "intel_iommu", "intremap", "iommu",
	"iommu.passthrough", "iommu.strict", "kvm.ignore_msrs", "modprobe.blacklist", "module_blacklist", "nointremap", "nomodeset", "nouveau.modeset",
	"nvidia-drm.modeset", "pci", "pcie_acs_override", "rd.driver.blacklist", "rd.driver.pre", "video", "vfio-pci.ids", "vfio_pci.ids",
	"vfio_iommu_type1.allow_unsafe_interrupts",
}

func parametersOf(line string) []string {
	var kept []string
	for parameter := range strings.FieldsSeq(line) {
		if name, _, _ := strings.Cut(parameter, "="); slices.Contains(parameterNames, name) {
			kept = append(kept, parameter)
		}
	}
	return kept
}

// Parameter is the last value of a parameter of the kernel's command line, and whether it is there.
func (h *Host) Parameter(name string) (value string, there bool) {
	for _, parameter := range h.Parameters {
		if before, after, _ := strings.Cut(parameter, "="); before == name {
			value, there = after, true
		}
	}
	return value, there
}
