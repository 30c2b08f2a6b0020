package preflight

import (
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// ofHosts are the findings of a device that the host itself needs, or that a claim of Divvy's has: who takes it from its driver takes
// away the host's disk, its network, its keyboard or its console, or a virtual machine's device.
var ofHosts = []ID{"group.used", "usb.all", "display.boot", "claimed"}

// withheld is the finding for which nothing is printed that takes the device from the host, nil where there is none. The functions of
// its card in the same group go with it, so they count as well.
func (l look) withheld() *Finding {
	for _, d := range alongWith(l.host, l.device) {
		if d.Group != l.device.Group {
			continue
		}
		function := look{host: l.host, device: d, ask: l.ask}
		for _, f := range slices.Concat(function.group(), function.display(), function.claimed()) {
			if f.Status == Fail && slices.Contains(ofHosts, f.ID) {
				return &f
			}
		}
	}
	return nil
}

// goesWith is a device with the functions of its card that go with it, without those that are withheld, and those of other groups that
// are in use.
func (l look) goesWith() []facts.Device {
	return slices.DeleteFunc(alongWith(l.host, l.device), func(d facts.Device) bool {
		return d.Group != l.device.Group && onIt(d) != "" || look{host: l.host, device: d, ask: l.ask}.withheld() != nil
	})
}

// partOf divides devices: given are those that may be taken from the host, and notes say why the others may not.
func partOf(host *facts.Host, devices []facts.Device, ask Question) (given []facts.Device, notes []string) {
	notes = []string{}
	for _, d := range devices {
		if host.TopologyOnly {
			notes = append(notes, fmt.Sprintf("what gives %s to a virtual machine: the recording has not what that depends on", d.Address))
			continue
		}
		if f := (look{host: host, device: d, ask: ask}).withheld(); f != nil {
			notes = append(notes, fmt.Sprintf("nothing that takes %s from the host, because of %s: %s", d.Address, f.ID, f.Evidence))
			continue
		}
		given = append(given, d)
	}
	return given, notes
}

// barred says why the device cannot be given as a whole, empty where it can.
func (l look) barred() string {
	if l.host.TopologyOnly {
		return notRecorded
	}
	if f := l.withheld(); f != nil {
		return f.Evidence
	}
	if !l.linux() || l.device.Group != facts.NoGroup {
		return ""
	}
	for _, f := range slices.Concat(l.group(), l.iommu()) {
		if f.Status == Fail {
			return f.Evidence
		}
	}
	return ""
}

// forms are the ways in which a device can be given to the platform. None gives it as a whole where something bars that.
func (l look) forms() []Form {
	all, why := forms(l.host, l.device), l.barred()
	for i, f := range all {
		if whole := f.Form == "passthrough" || f.Form == "vf" && l.device.Virtual; whole && f.Offered && why != "" {
			all[i].Offered, all[i].Why = false, why
		}
	}
	return all
}
