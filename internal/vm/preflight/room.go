package preflight

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

func (l look) regions() []Finding {
	var lost, told []string
	for _, bar := range l.device.BARs {
		switch {
		case !bar.Memory:
		case !bar.Placed:
			lost = append(lost, fmt.Sprintf("region %d of %s", bar.Number, size(int64(bar.Size))))
		default:
			told = append(told, fmt.Sprintf("region %d of %s", bar.Number, size(int64(bar.Size))))
		}
	}
	switch {
	case len(lost) > 0:
		return one("bars", Fail, l.device.Address.String()+" has no place for "+strings.Join(lost, ", "), "switch on Above 4G Decoding in the firmware, and Resizable BAR where it has that", "dmesg | grep -i 'BAR'")
	case len(told) > 0:
		return fine("bars", "all regions have a place: "+strings.Join(told, ", "))
	}
	return nil
}

// wide is the room that a device's 64-bit regions need in a guest: their sum, up to the next power of two.
func wide(d facts.Device) uint64 {
	var sum uint64
	for _, bar := range d.BARs {
		if bar.Wide && bar.Size < 1<<62 {
			sum += bar.Size
		}
	}
	if sum == 0 || sum > 1<<62 {
		return 0
	}
	return 1 << bits.Len64(sum-1)
}

func (l look) window() []Finding {
	need, have := wide(l.device), l.host.CPU.AddressBits
	if need < 1<<30 || have == 0 || l.ask.For == ESXi || l.ask.For == Xen {
		return nil
	}
	// OVMF takes an eighth of what the guest's processor can address.
	room := uint64(1) << (have - min(have, 3))
	if need > room {
		return one("bar.window", Warn, fmt.Sprintf("the guest needs %s for the device, and firmware OVMF gives an eighth of %d address bits, %s", size(int64(need)), have, size(int64(room))),
			"give the guest's firmware a larger window, see below", "")
	}
	return fine("bar.window", fmt.Sprintf("the guest needs %s for the device: the host's %d address bits must reach the guest", size(int64(need)), have))
}

func (l look) reset() []Finding {
	d := l.device
	if !l.linux() || !d.ResetKnown {
		return nil
	}
	given := []pci.Address{d.Address}
	if !d.Virtual {
		for _, m := range facts.Endpoints(l.host.InGroup(d.Group)) {
			given = append(given, m.Address)
		}
	}
	switch how := l.host.ResetOf(d, given); {
	case how == facts.ResetNever:
		return one("reset", Warn, "the kernel has no way to reset "+d.Address.String(), "restart the host between two users' guests: the next one finds what the last one left in the device's memory, so Divvy gives it to nobody else until then", fmt.Sprintf("cat /sys/bus/pci/devices/%s/reset_method", d.Address))
	case len(d.Resets) == 0:
		return fine("reset", "vfio-pci resets "+d.Address.String()+" with all functions beside it once none is open, which proves nothing of the device's firmware")
	}
	return fine("reset", "reset by "+strings.Join(d.Resets, ", ")+" between two guests, which proves nothing of the device's firmware")
}

// switches looks for NVSwitches, which the fabric manager divides into partitions.
func (l look) switches() []Finding {
	if l.device.Vendor != facts.NVIDIA || l.device.Virtual {
		return nil
	}
	count := 0
	for _, d := range l.host.Devices {
		if d.Vendor == facts.NVIDIA && d.Class>>8 == 0x0680 {
			count++
		}
	}
	switches := facts.Counted(count, "NVSwitch", "NVSwitches")
	const config = "grep FABRIC_MODE /usr/share/nvidia/nvswitch/fabricmanager.cfg"
	switch {
	case count == 0:
		return nil
	case l.host.FabricMode == "1" || l.host.FabricMode == "2":
		return one("nvswitch", Unknown, fmt.Sprintf("the host has %s, and the fabric manager's mode is %s: whether a partition of just these GPUs is active is not seen here", switches, l.host.FabricMode),
			"activate one before the virtual machine starts", "fmpm -l")
	}
	mode := l.host.FabricMode
	if mode == "" {
		mode = "not set"
	}
	return one("nvswitch", Fail, fmt.Sprintf("the host has %s, and the fabric manager's FABRIC_MODE is %s: the GPU would start in the guest without NVLink, or not at all", switches, mode),
		"FABRIC_MODE=1 and a partition of just these GPUs; or give all GPUs and all NVSwitches to one guest", config)
}
