package preflight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

func (l look) driver() []Finding {
	d := l.device
	if l.ask.For == ESXi {
		return nil
	}
	where, reserved := l.host.Reserved(d)
	if reserved && !slices.Contains(forGuests, d.Driver) {
		remedy, command := l.earlier()
		if f := l.needed(); f != nil {
			remedy, command = "leave it with its driver because of "+string(f.ID)+", and take the reservation away", ""
		}
		return one("driver.first", Fail, fmt.Sprintf("%s is reserved for vfio-pci by %s, and driver %s took it first", d.Address, where, d.Driver), remedy, command)
	}
	if found := l.overridden(); found != nil {
		return found
	}
	switch {
	case d.Driver == "":
		return fine("driver", d.Address.String()+" has no driver")
	case d.Driver == "vfio-pci":
		return fine("driver", d.Address.String()+" is on vfio-pci already")
	case d.Virtual && d.VGPU != nil:
		return fine("driver", d.Address.String()+" is on driver "+d.Driver+", which makes vGPUs of it: it stays there")
	}
	if slices.Contains(forGuests, d.Driver) {
		return fine("driver", d.Address.String()+" is on "+d.Driver+", which keeps it for virtual machines")
	}
	return fine("driver", d.Address.String()+" is on driver "+d.Driver+", which lets go of it for the virtual machine")
}

// overridden tells of a device that another tool keeps for a driver.
func (l look) overridden() []Finding {
	if l.ask.For == ESXi {
		return nil
	}
	for _, m := range l.along() {
		if m.Override != "" && m.Override != m.Driver {
			return one("driver.override", Fail, fmt.Sprintf("driver_override of %s is %s, which some tool has set, so a claim refuses it", m.Address, m.Override),
				"end that tool's use of the device, then clear it", fmt.Sprintf("echo > /sys/bus/pci/devices/%s/driver_override", m.Address))
		}
	}
	return nil
}

// earlier says why a driver came before vfio-pci and how that changes.
func (l look) earlier() (remedy, command string) {
	driver := strings.ReplaceAll(l.device.Driver, "-", "_")
	first, last := l.host.Before("vfio-pci", driver), l.host.Before(driver, "vfio-pci")
	switch {
	case l.host.Modules[driver].Builtin:
		return l.device.Driver + " is built into the kernel and always comes first: bind the device by driver_override when the machine runs",
			fmt.Sprintf("echo vfio-pci > /sys/bus/pci/devices/%s/driver_override", l.device.Address)
	case len(first) == 0 && len(last) > 0:
		return "take away what loads " + driver + " before vfio-pci: " + strings.Join(last, ", ") + "; then make the initramfs anew (dracut -f on Fedora and RHEL)",
			"grep -rn -e rd.driver.pre -e softdep /etc/default/grub /etc/kernel /etc/modprobe.d"
	case len(first) > 0:
		return "the host says already that vfio-pci comes first (" + strings.Join(first, ", ") + "), so its initramfs is older than that, or has " + driver + " and not vfio-pci: make it anew with vfio-pci (dracut -f --add-drivers vfio-pci on Fedora and RHEL)",
			"grep -qx vfio-pci /etc/initramfs-tools/modules || echo vfio-pci >> /etc/initramfs-tools/modules; update-initramfs -u"
	}
	return "say that vfio-pci comes first, and make the initramfs anew (dracut -f on Fedora and RHEL), because it may have " + driver + " without that",
		fmt.Sprintf("echo 'softdep %s pre: vfio-pci' >> /etc/modprobe.d/vfio.conf && update-initramfs -u", driver)
}

// ends are how known programs of the host let go of a device, by their names, of which the kernel tells 15 characters.
var ends = []struct{ name, command string }{
	{"nvidia-persiste", "systemctl stop nvidia-persistenced"},
	{"nv-hostengine", "systemctl stop nvidia-dcgm"},
	{"dcgm-exporter", "systemctl stop nvidia-dcgm-exporter"},
	{"nv-fabricmanage", "systemctl stop nvidia-fabricmanager"},
	{"Xorg", "systemctl isolate multi-user.target"},
	{"Xwayland", "systemctl isolate multi-user.target"},
	{"gnome-shell", "systemctl isolate multi-user.target"},
	{"kwin_wayland", "systemctl isolate multi-user.target"},
	{"sddm", "systemctl isolate multi-user.target"},
	{"divvy", "divvy ls"},
}

// holds are the processes that have a device or what goes with it open, each once for a node, and the nodes that there are.
func (l look) holds() (held []facts.Holder, nodes []string) {
	for _, m := range l.along() {
		for _, h := range m.Holders {
			if !slices.ContainsFunc(held, func(o facts.Holder) bool { return o.PID == h.PID && o.Node == h.Node }) {
				held = append(held, h)
			}
		}
		nodes = append(nodes, m.Nodes...)
	}
	slices.Sort(nodes)
	return held, slices.Compact(nodes)
}

// heldBy names who has the device open, of many the first.
func (l look) heldBy() (parts []string) {
	const most = 5
	held, _ := l.holds()
	for _, h := range held[:min(len(held), most)] {
		parts = append(parts, holding(h))
	}
	if more := len(held) - most; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return parts
}

func holding(h facts.Holder) string {
	text := fmt.Sprintf("process %d (%s) has /dev/%s open", h.PID, h.Name, h.Node)
	if h.Container != "" {
		text += " in container " + h.Container
	}
	return text
}

// letsGo tells whether a process is the agent's, which lets go of a GPU for a claim. Its name tells nothing: each process chooses its own.
func (l look) letsGo(h facts.Holder) bool {
	claims := slices.Contains([]Platform{QEMU, Libvirt, KubeVirt}, l.ask.For)
	return claims && l.ask.Own.Agent && slices.Contains(l.ask.Own.Processes, h.PID)
}

func (l look) holders() []Finding {
	if !l.linux() || len(l.claimed()) > 0 {
		return nil
	}
	held, nodes := l.holds()
	if len(held) == 0 {
		if len(nodes) > 0 && len(l.host.Blind) == 0 {
			return fine("holder", "nobody has /dev/"+strings.Join(nodes, ", /dev/")+" open")
		}
		return nil
	}
	if !slices.ContainsFunc(held, func(h facts.Holder) bool { return !l.letsGo(h) }) {
		return fine("holder", "Divvy's agent alone has it open, and lets go of it for a claim")
	}
	command := "fuser -v /dev/" + held[0].Node
	for _, known := range ends {
		if held[0].Name == known.name && held[0].Container == "" {
			command = known.command
			break
		}
	}
	return one("holder", Fail, strings.Join(l.heldBy(), ", "), "end them first: a driver that is told to let go waits for them, and cannot be stopped while it waits", command)
}

// drm warns of the module that shows NVIDIA's GPUs to displays: what opens one by it is a holder from then on.
func (l look) drm() []Finding {
	if !l.linux() || l.device.Driver != "nvidia" || l.device.Virtual || !l.host.Modules["nvidia_drm"].Loaded {
		return nil
	}
	command := "modprobe -r nvidia_drm"
	if l.needed() != nil {
		command = "" // it would take from the host what it draws on
	}
	return one("drm", Warn, "module nvidia_drm is loaded: a display server or the console can take "+l.device.Address.String()+" by it at any time",
		"unload it, and keep it from being loaded, on hosts whose GPUs go to virtual machines", command)
}

// display looks for the console and its framebuffer, which is the host's whatever drives the devices.
func (l look) display() []Finding {
	for _, m := range l.along() {
		for _, frame := range l.host.Framebuffers {
			firmware := !frame.OnPCI && m.BootDisplay
			if frame.OnPCI && frame.Device != m.Address || !frame.OnPCI && !firmware {
				continue
			}
			remedy := "make another GPU the first one in the firmware; or take the console off it"
			if firmware {
				remedy = "make another GPU the first one in the firmware; or start the kernel with initcall_blacklist=sysfb_init and read the console by serial line or network"
			}
			return one("display.boot", Fail, fmt.Sprintf("the console's framebuffer %s is on %s", frame.Name, m.Address), remedy, "cat /sys/class/graphics/fb*/name /sys/class/vtconsole/*/name")
		}
	}
	if l.linux() && l.device.BootDisplay {
		return one("display.boot", Warn, l.device.Address.String()+" is the display that the firmware draws on", "make another GPU the first one in the firmware; else a guest may need a copy of the card's ROM", "")
	}
	return nil
}

func (l look) hidden() []Finding {
	if l.device.Vendor != facts.NVIDIA || l.device.Class>>8 != 0x0300 || l.device.Virtual {
		return nil
	}
	return fine("hidden", "drivers of GeForce cards before 465 do not start in a guest that shows its hypervisor (code 43); newer ones and those of other cards do, and hiding costs the guest its paravirtual clock")
}

// licence tells which forms need NVIDIA's, of a GPU that has vGPUs, or could have: by SR-IOV, or as a card without a display.
func (l look) licence() []Finding {
	d := l.device
	ofGPU := d.IsGPU()
	if d.Virtual {
		parent, found := l.host.Find(d.Parent)
		ofGPU = found && parent.IsGPU()
	}
	const noDisplay = 0x0302
	able := d.VGPU != nil || d.VFsTotal > 0 || d.Virtual || d.Class>>8 == noDisplay || len(l.host.VirtualOf(d.Address)) > 0
	if d.Vendor != facts.NVIDIA || !ofGPU || !able {
		return nil
	}
	return fine("licence", "form passthrough needs no licence; form vgpu needs NVIDIA's in each of its ways: by mediated devices, by vendor VFIO, and with a GPU instance behind it. Each guest asks for it by itself: whether it gets one cannot be seen from the host")
}
