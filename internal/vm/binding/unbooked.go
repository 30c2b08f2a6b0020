package binding

import (
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vgpu"
)

// unknown stands for a driver that nobody knows.
const unknown = "the driver that takes it by itself"

// Unbooked is a plan to be undone of functions that are on [Driver] where it is not known what they had before: they get no override,
// and whichever driver takes them then.
func Unbooked(form Form, members []pci.Address) Plan {
	p := Plan{Form: form, Device: members[0], Group: facts.NoGroup, Members: members}
	for _, m := range members {
		p.Steps = append(p.Steps, Step{
			Kind: Unbind, Device: m, State: driverOf(m), Before: unknown, Undo: Write{Path: "bus/pci/drivers_probe", Value: m.String()},
		})
	}
	for _, m := range members {
		p.Steps = append(p.Steps, override(facts.Device{Device: pci.Device{Address: m}}))
	}
	for _, m := range members {
		p.Steps = append(p.Steps, probe(m))
	}
	return p
}

// UnbookedMediated is a plan to be undone of a mediated device on a function.
func UnbookedMediated(on pci.Address, uuid, kind string) Plan {
	return mediated(vgpu.Function{Address: on}, Wanted{UUID: uuid, Type: vgpu.Choice{ID: kind}})
}

// UnbookedStep is a step to be undone whose file has a value now, if it is of a kind for which that is enough to know.
func UnbookedStep(kind Kind, device pci.Address) (s Step, is bool) {
	file, before := "", "0"
	switch kind {
	case Type:
		file = "/nvidia/current_vgpu_type"
	case Back:
		file, before = "/nvidia/gpu_instance_id", noInstance
	case Enable:
		file = "/sriov_numvfs"
	case Withhold:
		file, before = "/sriov_drivers_autoprobe", "1"
	default:
		return s, false
	}
	s = alike(kind, device, DeviceFolder(device)+file, before, "")
	if kind == Type || kind == Back {
		s.Do.Group, s.Undo.Group = groupOf(device), groupOf(device)
	}
	return s, true
}

// noInstance is the number of no GPU instance behind a function.
const noInstance = "4294967295"
