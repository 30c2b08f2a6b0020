package preflight

import (
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// ofHosts are the findings of a device that the host itself needs, or that a claim of Divvy's has: who takes it from its driver takes
// away the host's disk, its network, its keyboard or its console, or a virtual machine's device.
var ofHosts = []ID{"group.used", "usb.all", "display.boot", "claimed"}

// needed is the finding for which the device is the host's or a claim's, nil where there is none.
func (l look) needed() *Finding {
	return l.failing(func(function look) []Finding {
		return slices.DeleteFunc(slices.Concat(function.group(), function.display(), function.claimed()), func(f Finding) bool { return !slices.Contains(ofHosts, f.ID) })
	})
}

// withheld is the finding for which nothing is printed that takes the device from its driver, nil where there is none: somebody would
// lose what they use, the driver would wait for them for ever, or no virtual machine could have the device afterwards.
func (l look) withheld() *Finding {
	if f := l.needed(); f != nil {
		return f
	}
	return l.failing(func(function look) []Finding {
		found := slices.Concat(function.group(), function.overridden(), function.shares(), function.holders(), function.vgpu(), function.virtual(), function.instances(), function.switches())
		if function.device.Group == facts.NoGroup {
			found = append(found, function.iommu()...)
		}
		return slices.Concat(found, function.interrupts(), function.modules())
	})
}

// failing is the first failure that a check has of the device. The functions of its card in the same group go with it, so they count
// as well.
func (l look) failing(check func(look) []Finding) *Finding {
	for _, d := range alongWith(l.host, l.device) {
		if d.Group != l.device.Group {
			continue
		}
		for _, f := range check(look{host: l.host, device: d, ask: l.ask}) {
			if f.Status == Fail {
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
			notes = append(notes, fmt.Sprintf("nothing that takes %s from its driver, because of %s: %s", d.Address, f.ID, f.Evidence))
			continue
		}
		if d.Virtual && d.VGPU != nil {
			notes = append(notes, fmt.Sprintf("nothing that takes %s from its driver, which makes vGPUs of it", d.Address))
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
		return string(f.ID) + ": " + f.Evidence
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
		if f.Form == formVGPU && f.Offered {
			if why := l.barredParts(); why != "" {
				all[i].Offered, all[i].Why = false, why
			}
		}
	}
	return all
}
