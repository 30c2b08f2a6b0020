package facts

import (
	"slices"

	"github.com/divvy-gpu/divvy/internal/pci"
)

// Reset is who resets a function between two virtual machines.
type Reset int

// The answers to [Host.ResetOf].
const (
	// ResetUnknown is that the kernel does not tell.
	ResetUnknown Reset = iota
	// ResetAlone is that the kernel can reset the function by itself.
	ResetAlone
	// ResetTogether is that vfio-pci resets all functions below the port once none of them is open.
	ResetTogether
	// ResetNever is that nothing but a restart of the machine resets it.
	ResetNever
)

// buses are the ways to reset all functions below a port, which the kernel does for none of them alone.
var buses = []string{"bus", "cxl_bus"}

// ResetOf tells who resets a function that is given to a virtual machine together with others, of which it may be one.
func (h *Host) ResetOf(d Device, given []pci.Address) Reset {
	switch {
	case !d.ResetKnown && len(d.Resets) == 0:
		return ResetUnknown
	case slices.ContainsFunc(d.Resets, func(way string) bool { return !slices.Contains(buses, way) }):
		return ResetAlone
	case d.Virtual, len(d.Bridges) == 0 && len(d.Resets) == 0:
		return ResetNever
	}
	beside := 0
	for _, other := range h.Devices {
		if other.Address == d.Address || other.Virtual || other.Address.Domain != d.Address.Domain || other.Address.Bus != d.Address.Bus {
			continue
		}
		if !slices.Contains(given, other.Address) {
			return ResetNever // vfio-pci resets none that somebody else has
		}
		beside++
	}
	if beside == 0 && len(d.Resets) == 0 {
		return ResetNever // the kernel tells of a bus with one function
	}
	return ResetTogether
}
