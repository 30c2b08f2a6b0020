package preflight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// Handover is what a virtual machine is given that was made ready for it.
type Handover struct {
	// Members are the PCI functions, the one that was asked for first. A mediated device has the function on which it lies.
	Members []pci.Address
	// Mediated is the UUID of a mediated device, empty for PCI functions.
	Mediated string
	// Path is the device's folder in sysfs where QEMU must be given that, empty where the address suffices.
	Path string
	// LimitUnknown is who runs the virtual machine where it is not known how much memory their programs may lock, empty where it is.
	LimitUnknown string
}

// Handed is what a platform needs to give it to a virtual machine.
type Handed struct {
	Needs []Snippet `json:"needs"`
	// Arguments are those of QEMU, one by one; none for another platform.
	Arguments []string `json:"arguments,omitempty"`
	// Warnings are what keeps a virtual machine from starting with it all the same.
	Warnings []Finding `json:"warnings,omitempty"`
}

// Hand says what QEMU or libvirt needs. What was made ready is bound already, so nothing else binds it.
func Hand(host *facts.Host, h Handover, ask Question) Handed {
	w := writer{host: host, ask: ask, ready: &h}
	for _, at := range h.Members {
		if d, found := host.Find(at); found {
			w.given = append(w.given, d)
		}
	}
	w.devices = w.given[:min(1, len(w.given))]
	var out Handed
	if ask.For == Libvirt {
		out.Needs = w.libvirt()
	} else {
		out.Needs = []Snippet{w.qemu()}
		for _, line := range w.qemuLines() {
			out.Arguments = append(out.Arguments, line...)
		}
	}
	said := (look{host: host, ask: ask}).memory()
	if h.LimitUnknown != "" && ask.For == QEMU { // the host's facts have the limit of who asks
		said = slices.DeleteFunc(said, func(f Finding) bool { return f.ID == "memlock" })
		said = append(said, one("memlock", Unknown, "how much memory programs of "+h.LimitUnknown+" may lock is not known, because none runs; all memory of the virtual machine is pinned",
			"see as that user, where QEMU is to start", "ulimit -l")...)
	}
	for _, d := range w.given {
		if h.Mediated == "" && d.Driver == "vfio-pci" { // others are the host driver's to clear
			said = append(said, look{host: host, ask: ask, device: d}.reset()...)
		}
	}
	for _, f := range said {
		if f.Status != OK {
			out.Warnings = append(out.Warnings, f)
		}
	}
	return out
}

// sysfs is the folder by which QEMU is given a device, "" where it is given the address.
func (w writer) sysfs(d facts.Device) string {
	switch {
	case w.ready != nil && w.ready.Mediated != "":
		return "/sys/bus/mdev/devices/" + w.ready.Mediated
	case w.ready != nil && w.ready.Path != "":
		return w.ready.Path
	case vendor(d):
		return "/sys/bus/pci/devices/" + d.Address.String()
	}
	return ""
}

// cpu is the processor that QEMU gives a guest.
func (w writer) cpu() string {
	if w.host.KVM == facts.No {
		return "max"
	}
	return "host,host-phys-bits=on"
}

// qemuLines are the arguments of QEMU, those of one line together.
func (w writer) qemuLines() [][]string {
	accelerator := "kvm"
	if w.host.KVM == facts.No {
		accelerator = "tcg"
	}
	lines := [][]string{{"-machine", "q35,accel=" + accelerator, "-cpu", w.cpu(), "-m", w.amount()}}
	if mib := w.windowMiB(); mib > 0 {
		lines = append(lines, []string{"-fw_cfg", fmt.Sprintf("name=opt/ovmf/X-PciMmio64Mb,string=%d", mib)})
	}
	ports := map[pci.Address]string{}
	for _, d := range w.given {
		slot := d.Address
		slot.Function = 0
		port, there := ports[slot]
		if !there || d.Virtual {
			port = fmt.Sprintf("gpu%d", len(ports))
			ports[slot] = port
			lines = append(lines, []string{"-device", fmt.Sprintf("pcie-root-port,id=%s,chassis=%d", port, len(ports))})
		}
		if folder := w.sysfs(d); folder != "" {
			lines = append(lines, []string{"-device", fmt.Sprintf("vfio-pci,sysfsdev=%s,bus=%s", folder, port)})
			continue
		}
		device := fmt.Sprintf("vfio-pci,host=%s,bus=%s", d.Address, port)
		if !d.Virtual && len(w.given) > len(w.devices) {
			device += fmt.Sprintf(",addr=0x0.%#x", d.Address.Function)
			if d.Address.Function == 0 {
				device += ",multifunction=on"
			}
		}
		lines = append(lines, []string{"-device", device})
	}
	return lines
}

func (w writer) qemu() Snippet {
	var lines []string
	for _, line := range w.qemuLines() {
		lines = append(lines, strings.Join(line, " "))
	}
	return Snippet{"Arguments of QEMU", strings.Join(lines, " \\\n") + "\n"}
}

// amount is the guest's memory as QEMU takes it, or an example.
func (w writer) amount() string {
	switch {
	case w.ask.Memory == 0:
		return "16G"
	case w.ask.Memory%(1<<30) != 0:
		return fmt.Sprintf("%dM", (w.ask.Memory+1<<20-1)>>20)
	}
	return fmt.Sprintf("%dG", w.ask.Memory>>30)
}
