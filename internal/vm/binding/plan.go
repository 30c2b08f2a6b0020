package binding

import (
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// Passthrough plans to give a physical function with the rest of its group. Other cards of the group are taken from their
// drivers only where they are named by one of their functions. Its errors are of type [Refusal].
func Passthrough(host *facts.Host, device pci.Address, also ...pci.Address) (Plan, error) {
	d, err := find(host, device)
	if err == nil && d.Virtual {
		err = refuse(device, d, ErrVirtual, "ask for form vf")
	}
	if err != nil {
		return Plan{}, err
	}
	members := facts.Endpoints(host.InGroup(d.Group))
	for _, at := range also {
		if err := goes(host, d, at); err != nil {
			return Plan{}, err
		}
	}
	for _, check := range []func(*facts.Host, facts.Device, []facts.Device) error{used, displayed, divided} {
		if err := check(host, d, members); err != nil {
			return Plan{}, err
		}
	}
	given, err := together(d, members, also)
	if err != nil {
		return Plan{}, err
	}
	for _, check := range []func(*facts.Host, facts.Device, []facts.Device) error{held, overridden} {
		if err := check(host, d, given); err != nil {
			return Plan{}, err
		}
	}
	return planned(host, FormPassthrough, d, given), nil
}

// goes returns why a function that was named cannot go with a device: a claim has one group, and all of it but bridges.
func goes(host *facts.Host, d facts.Device, named pci.Address) error {
	other, there := host.Find(named)
	switch {
	case !there:
		return &Refusal{Asked: d.Address, Device: named, Why: ErrNoDevice}
	case other.Group == facts.NoGroup:
		return refuse(d.Address, other, ErrApart, "it is in no IOMMU group")
	case other.Group != d.Group:
		return refuse(d.Address, other, ErrApart, fmt.Sprintf("it is in IOMMU group %d, and %s in group %d: claim it by itself", other.Group, d.Address, d.Group))
	case other.IsBridge():
		return refuse(d.Address, other, ErrBridge, "")
	}
	return nil
}

// together are the members of a group that are given with a device, itself the first.
func together(d facts.Device, members []facts.Device, also []pci.Address) ([]facts.Device, error) {
	given := []facts.Device{d}
	for _, m := range members {
		named := slices.ContainsFunc(append(slices.Clone(also), d.Address), func(a pci.Address) bool { return facts.SameSlot(m.Address, a) })
		switch {
		case m.Address == d.Address:
		case m.Driver == stub && !named: // it is kept from the host already, and vfio takes such a group
		case !named && m.Driver != "" && !slices.Contains(givers, m.Driver):
			return nil, refuse(d.Address, m, ErrShared, fmt.Sprintf("driver %s has it: --also %s lets it go too", m.Driver, m.Address))
		default:
			given = append(given, m)
		}
	}
	return given, nil
}

// Function plans to give one virtual function. Its errors are of type [Refusal].
func Function(host *facts.Host, device pci.Address) (Plan, error) {
	d, err := find(host, device)
	if err == nil && !d.Virtual {
		err = refuse(device, d, ErrPhysical, "ask for form passthrough")
	}
	if err != nil {
		return Plan{}, err
	}
	alone := []facts.Device{d}
	for _, check := range []func(*facts.Host, facts.Device, []facts.Device) error{used, displayed, divided} {
		if err := check(host, d, alone); err != nil {
			return Plan{}, err
		}
	}
	for _, m := range facts.Endpoints(host.InGroup(d.Group)) {
		if m.Address != device && m.Driver != "" && m.Driver != stub && !slices.Contains(givers, m.Driver) {
			return Plan{}, refuse(device, m, ErrShared, "driver "+m.Driver+" has it")
		}
	}
	for _, check := range []func(*facts.Host, facts.Device, []facts.Device) error{held, overridden} {
		if err := check(host, d, alone); err != nil {
			return Plan{}, err
		}
	}
	return planned(host, FormFunction, d, alone), nil
}

// givers are the drivers that give devices to virtual machines: who is on one is not moved.
var givers = []string{Driver, "nvgrace_gpu_vfio_pci"}

// stub keeps a device from the host and gives it to nobody.
const stub = "pci-stub"

func refuse(asked pci.Address, in facts.Device, why error, detail string) error {
	return &Refusal{Asked: asked, Device: in.Address, Why: why, Detail: detail}
}

// find finds a device that could be given.
func find(host *facts.Host, device pci.Address) (facts.Device, error) {
	d, there := host.Find(device)
	switch {
	case !there:
		return d, &Refusal{Asked: device, Device: device, Why: ErrNoDevice}
	case d.IsBridge():
		return d, refuse(device, d, ErrBridge, "")
	case d.Group == facts.NoGroup:
		return d, refuse(device, d, ErrNoGroup, fmt.Sprintf("`divvy vm preflight %s --for qemu` says why", device))
	case host.Unremapped():
		return d, Remapped(host, device)
	case !host.Modules["vfio_pci"].Loaded:
		return d, refuse(device, d, ErrModule, "modprobe vfio-pci")
	}
	return d, nil
}

// Remapped refuses a device where interrupts are not remapped, because vfio refuses all then.
func Remapped(host *facts.Host, device pci.Address) error {
	if !host.Unremapped() {
		return nil
	}
	return &Refusal{Asked: device, Device: device, Why: ErrRemap, Detail: facts.NotRemapped + ": " + host.Remap()}
}

func used(_ *facts.Host, d facts.Device, members []facts.Device) error {
	for _, m := range members {
		if uses := UsesOf(m); uses != "" {
			return refuse(d.Address, m, ErrUsed, uses)
		}
		if what, takeDown := m.Network(); what != "" {
			what += ": where the host does not need it, take it down first"
			if takeDown != "" {
				what += ", as root: `" + takeDown + "`"
			}
			return refuse(d.Address, m, ErrUsed, what)
		}
	}
	return nil
}

// UsesOf names what the host does with a device, "" for nothing.
func UsesOf(d facts.Device) string {
	var parts []string
	for _, u := range d.Uses {
		parts = append(parts, u.String())
	}
	return listed(parts)
}

func displayed(host *facts.Host, d facts.Device, members []facts.Device) error {
	for _, frame := range host.Framebuffers {
		for _, m := range members {
			if frame.OnPCI && frame.Device == m.Address || !frame.OnPCI && m.BootDisplay {
				return refuse(d.Address, m, ErrDisplay, "framebuffer "+frame.Name)
			}
		}
	}
	return nil
}

func divided(host *facts.Host, d facts.Device, members []facts.Device) error {
	for _, m := range members {
		var parts []string
		if vgpus := vgpusOn(host, m); vgpus > 0 {
			parts = append(parts, facts.Counted(vgpus, "vGPU", "vGPUs"))
		}
		if m.VFs > 0 {
			parts = append(parts, facts.Counted(m.VFs, "virtual function", "virtual functions"))
		}
		if m.Instances > 0 {
			parts = append(parts, facts.Counted(m.Instances, "MIG instance", "MIG instances"))
		}
		if len(parts) > 0 {
			return refuse(d.Address, m, ErrDivided, "it has "+strings.Join(parts, ", "))
		}
		if m.Virtual && m.VGPU != nil {
			return refuse(d.Address, m, ErrDivided, "its driver makes vGPUs of it: ask for form vgpu")
		}
	}
	return nil
}

// vgpusOn counts the vGPUs on a device and its virtual functions.
func vgpusOn(host *facts.Host, d facts.Device) (count int) {
	all := []facts.Device{d}
	if !d.Virtual {
		all = append(all, host.VirtualOf(d.Address)...)
	}
	for _, f := range all {
		if f.VGPU == nil {
			continue
		}
		count += len(f.VGPU.Mdevs)
		if f.VGPU.Current != "" {
			count++
		}
	}
	return count
}

func overridden(host *facts.Host, d facts.Device, members []facts.Device) error {
	for _, m := range members {
		if slices.ContainsFunc(host.Unread, func(name string) bool { return strings.HasSuffix(name, "/"+m.Address.String()+"/driver_override") }) {
			return refuse(d.Address, m, ErrBusy, "its driver_override cannot be read now")
		}
		if m.Override != "" && m.Override != m.Driver {
			return refuse(d.Address, m, ErrOverride, fmt.Sprintf("it is %s: end that tool's use of the device, then clear it, as root: `echo > /sys/%s/driver_override`", m.Override, DeviceFolder(m.Address)))
		}
	}
	return nil
}

func held(_ *facts.Host, d facts.Device, members []facts.Device) error {
	for _, m := range members {
		if len(m.Holders) > 0 {
			return refuse(d.Address, m, ErrHeld, Named(m.Holders))
		}
	}
	return nil
}

// Named names who holds a device, of many the first.
func Named(holders []facts.Holder) string {
	parts := make([]string, len(holders))
	for i, h := range holders {
		parts[i] = fmt.Sprintf("process %d (%s) has /dev/%s", h.PID, h.Name, h.Node)
		if h.Container != "" {
			parts[i] += " in container " + h.Container
		}
	}
	return listed(parts)
}

// listed lists the first of many.
func listed(parts []string) string {
	const most = 5
	if more := len(parts) - most; more > 0 {
		parts = append(slices.Clone(parts[:most]), fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, ", ")
}

// planned takes all functions from their drivers first, because that may wait for whoever holds one, and the one that was
// asked for before the others. A function without a driver may say which one may take it, so the driver comes back by name
// after that is as it was.
func planned(host *facts.Host, form Form, d facts.Device, given []facts.Device) Plan {
	p := Plan{Form: form, Device: d.Address, Group: d.Group, Steps: []Step{}, Nodes: []string{fmt.Sprintf("/dev/vfio/%d", d.Group)}}
	var moved []facts.Device
	for _, m := range given {
		p.Members = append(p.Members, m.Address)
		if !slices.Contains(givers, m.Driver) {
			moved = append(moved, m)
		}
	}
	for _, m := range moved {
		if m.Driver != "" {
			p.Steps = append(p.Steps, unbind(m))
		}
	}
	p.Notes = notes(d, given)
	for _, m := range given {
		if host.ResetOf(m, p.Members) == facts.ResetNever {
			p.Unreset = append(p.Unreset, m.Address)
		}
	}
	for _, m := range moved {
		if host.ResetOf(m, p.Members) == facts.ResetAlone {
			p.Steps = append(p.Steps, Step{Kind: Reset, Device: m.Address, Undo: Write{Path: DeviceFolder(m.Address) + "/reset", Value: "1"}})
		}
	}
	for _, m := range moved {
		if m.Override != Driver {
			p.Steps = append(p.Steps, override(m))
		}
	}
	for _, m := range moved {
		p.Steps = append(p.Steps, probe(m.Address))
	}
	return p
}

// notes tell what others had set of functions before: that stays, or comes back.
func notes(d facts.Device, given []facts.Device) (all []string) {
	for _, m := range given {
		switch {
		case slices.Contains(givers, m.Driver):
			all = append(all, fmt.Sprintf("%s was with %s already, by somebody else: that is left, and it stays there after the release", m.Address, m.Driver))
		case m.Override != "":
			all = append(all, fmt.Sprintf("somebody else has set driver_override of %s to %q: the release sets it so again", m.Address, m.Override))
		case m.Driver == "" && m.Address == d.Address && !m.Virtual:
			all = append(all, fmt.Sprintf("%s had no driver: it has none after the release either", m.Address))
		}
	}
	return all
}

func driverOf(at pci.Address) State { return State{Path: DeviceFolder(at) + "/driver", Link: true} }

func unbind(m facts.Device) Step {
	folder, name := driversFolder+m.Driver, m.Address.String()
	return Step{
		Kind: Unbind, Device: m.Address, State: driverOf(m.Address), Before: m.Driver,
		Do: Write{Path: folder + "/unbind", Value: name}, Undo: Write{Path: folder + "/bind", Value: name},
	}
}

// override changes which driver may take a function. An empty line takes the restriction away.
func override(m facts.Device) Step {
	file := DeviceFolder(m.Address) + "/driver_override"
	return Step{
		Kind: Override, Device: m.Address, State: State{Path: file}, Before: m.Override, After: Driver,
		Do: Write{Path: file, Value: Driver + "\n"}, Undo: Write{Path: file, Value: m.Override + "\n"},
	}
}

func probe(at pci.Address) Step {
	return Step{
		Kind: Probe, Device: at, State: driverOf(at), After: Driver,
		Do:   Write{Path: "bus/pci/drivers_probe", Value: at.String()},
		Undo: Write{Path: driversFolder + Driver + "/unbind", Value: at.String(), Group: groupOf(at)},
	}
}

// groupOf is the link to a function's IOMMU group.
func groupOf(at pci.Address) string { return DeviceFolder(at) + "/iommu_group" }
