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
		if f := l.withheld(); f != nil {
			remedy, command = "leave it with its driver because of "+string(f.ID)+", and take the reservation away", ""
		}
		return one("driver.first", Fail, fmt.Sprintf("%s is reserved for vfio-pci by %s, and driver %s took it first", d.Address, where, d.Driver), remedy, command)
	}
	if d.Override != "" && d.Override != d.Driver {
		return one("driver.override", Warn, fmt.Sprintf("driver_override of %s is %s, which some tool has set", d.Address, d.Override),
			"end that tool's use of the device, then clear it", fmt.Sprintf("echo > /sys/bus/pci/devices/%s/driver_override", d.Address))
	}
	switch d.Driver {
	case "":
		return fine("driver", d.Address.String()+" has no driver")
	case "vfio-pci":
		return fine("driver", d.Address.String()+" is on vfio-pci already")
	}
	if slices.Contains(forGuests, d.Driver) {
		return fine("driver", d.Address.String()+" is on "+d.Driver+", which keeps it for virtual machines")
	}
	return fine("driver", d.Address.String()+" is on driver "+d.Driver+", which lets go of it for the virtual machine")
}

// earlier says why a driver came before vfio-pci and how that changes.
func (l look) earlier() (remedy, command string) {
	driver := strings.ReplaceAll(l.device.Driver, "-", "_")
	if l.host.Modules[driver].Builtin {
		return l.device.Driver + " is built into the kernel and always comes first: bind the device by driver_override when the machine runs",
			fmt.Sprintf("echo vfio-pci > /sys/bus/pci/devices/%s/driver_override", l.device.Address)
	}
	return "say that vfio-pci comes first, and make the initramfs anew (dracut -f on Fedora and RHEL), because it may have " + driver + " without that",
		fmt.Sprintf("echo 'softdep %s pre: vfio-pci' >> /etc/modprobe.d/vfio.conf && update-initramfs -u", driver)
}

// ends are how known programs let go of a device, by the beginning of their names, of which the kernel tells 15 characters.
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

func (l look) holders() []Finding {
	d := l.device
	if !l.linux() {
		return nil
	}
	if len(d.Holders) == 0 {
		if len(d.Nodes) > 0 && len(l.host.Blind) == 0 {
			return fine("holder", "nobody has /dev/"+strings.Join(d.Nodes, ", /dev/")+" open")
		}
		return nil
	}
	const most = 5
	var parts []string
	command := "fuser -v /dev/" + d.Holders[0].Node
	for _, h := range d.Holders[:min(len(d.Holders), most)] {
		text := fmt.Sprintf("process %d (%s) has /dev/%s open", h.PID, h.Name, h.Node)
		if h.Container != "" {
			text += " in container " + h.Container
		}
		parts = append(parts, text)
	}
	if more := len(d.Holders) - most; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	for _, known := range ends {
		if strings.HasPrefix(d.Holders[0].Name, known.name) {
			command = known.command
			break
		}
	}
	return one("holder", Fail, strings.Join(parts, ", "), "end them first: a driver that is told to let go waits for them, and cannot be stopped while it waits", command)
}

// drm warns of the module that shows NVIDIA's GPUs to displays: what opens one by it is a holder from then on.
func (l look) drm() []Finding {
	if !l.linux() || l.device.Driver != "nvidia" || l.device.Virtual || !l.host.Modules["nvidia_drm"].Loaded {
		return nil
	}
	return one("drm", Warn, "module nvidia_drm is loaded: a display server or the console can take "+l.device.Address.String()+" by it at any time",
		"unload it, and keep it from being loaded, on hosts whose GPUs go to virtual machines", "modprobe -r nvidia_drm")
}

func (l look) display() []Finding {
	h, d := l.host, l.device
	if !l.linux() {
		return nil
	}
	for _, frame := range h.Framebuffers {
		firmware := !frame.OnPCI && d.BootDisplay
		if frame.OnPCI && frame.Device != d.Address || !frame.OnPCI && !firmware {
			continue
		}
		remedy := "make another GPU the first one in the firmware; or take the console off it"
		command := "for c in /sys/class/vtconsole/*/bind; do echo 0 > $c; done"
		if firmware {
			remedy = "make another GPU the first one in the firmware; or start the kernel with initcall_blacklist=sysfb_init and read the console by serial line or network"
			command = "cat /sys/class/graphics/fb*/name"
		}
		return one("display.boot", Fail, fmt.Sprintf("the console's framebuffer %s is on %s", frame.Name, d.Address), remedy, command)
	}
	if d.BootDisplay {
		return one("display.boot", Warn, d.Address.String()+" is the display that the firmware draws on", "make another GPU the first one in the firmware; else a guest may need a copy of the card's ROM", "")
	}
	return nil
}

// vgpus are the vGPUs on a device and its virtual functions.
func (l look) vgpus() (found []string) {
	for _, d := range append(l.host.VirtualOf(l.device.Address), l.device) {
		if d.VGPU == nil {
			continue
		}
		for _, uuid := range d.VGPU.Mdevs {
			found = append(found, "mediated device "+uuid)
		}
		if d.VGPU.Current != "" {
			found = append(found, "type "+d.VGPU.Current+" on "+d.Address.String())
		}
	}
	return found
}

func (l look) vgpu() []Finding {
	found := l.vgpus()
	if len(found) == 0 || l.device.Virtual {
		return nil
	}
	return one("vgpu.on", Fail, "vGPUs are on "+l.device.Address.String()+": "+strings.Join(found[:min(len(found), 5)], ", "),
		"end their virtual machines and clear them; or give a vGPU instead of the whole GPU", "nvidia-smi vgpu -q")
}

func (l look) virtual() []Finding {
	d := l.device
	if d.VFs == 0 || len(l.vgpus()) > 0 {
		return nil
	}
	return one("sriov.on", Fail, fmt.Sprintf("%s has %d virtual functions, of %d at most", d.Address, d.VFs, d.VFsTotal),
		"take them away; or give one of them instead of the whole device", fmt.Sprintf("echo 0 > /sys/bus/pci/devices/%s/sriov_numvfs", d.Address))
}

func (l look) instances() []Finding {
	if l.device.Instances == 0 {
		return nil
	}
	return one("mig.instances", Fail, fmt.Sprintf("%s has %d MIG instances", l.device.Address, l.device.Instances),
		"take them away: they do not outlive the reset", "divvy gpu ls")
}

func (l look) companions() []Finding {
	d := l.device
	var with, without []facts.Device
	for _, other := range l.host.Devices {
		if other.Address == d.Address || !facts.SameSlot(other.Address, d.Address) || other.Virtual || d.Virtual || other.IsBridge() {
			continue
		}
		if other.Group == d.Group || slices.Contains(forGuests, other.Driver) {
			with = append(with, other)
		} else {
			without = append(without, other)
		}
	}
	switch {
	case len(without) > 0:
		return one("companion", Warn, "functions of the same card are in other groups: "+named(without), "give them as well, else the host's drivers stay on a part of the card, which a reset takes away from them", fmt.Sprintf("lspci -s %04x:%02x:%02x", d.Address.Domain, d.Address.Bus, d.Address.Device))
	case len(with) > 0:
		return fine("companion", "functions of the same card go along: "+named(with))
	}
	return nil
}

func (l look) hidden() []Finding {
	if l.device.Vendor != facts.NVIDIA || l.device.Class>>8 != 0x0300 || l.device.Virtual {
		return nil
	}
	return fine("hidden", "drivers of GeForce cards before 465 do not start in a guest that shows its hypervisor (code 43); newer ones and those of other cards do, and hiding costs the guest its paravirtual clock")
}

func (l look) licence() []Finding {
	if l.device.VGPU == nil && len(l.host.VirtualOf(l.device.Address)) == 0 {
		return nil
	}
	if l.device.Vendor != facts.NVIDIA {
		return nil
	}
	return fine("licence", "passthrough needs no licence; vGPUs need NVIDIA's, which each guest asks for by itself: whether it gets one cannot be seen from the host")
}
