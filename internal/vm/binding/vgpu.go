package binding

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vgpu"
)

// Why no vGPU is planned. A [Refusal] has one of them.
var (
	ErrFull      = vgpu.ErrFull
	ErrUUID      = errors.New("it is not a UUID such as 5f0b7d4e-0f5c-4a3c-9c83-3c0e7a3f1d52")
	ErrUUIDTaken = errors.New("a mediated device has this UUID already")
)

// The kinds of steps of vGPUs. Their files take a value or change nothing.
const (
	// Mediate makes a mediated device.
	Mediate Kind = "mediate"
	// Back says which GPU instance is behind a function.
	Back Kind = "back"
	// Type gives a function a type.
	Type Kind = "type"
)

// VGPU is what a plan makes of [FormVGPU].
type VGPU struct {
	Interface vgpu.Interface `json:"interface"`
	// Type is the driver's for programs, Name the one for people, which is foreign.
	Type string `json:"type"`
	Name string `json:"name,omitempty"`
	// UUID is a mediated device's.
	UUID string `json:"uuid,omitempty"`
}

// Wanted is what is asked of [MakeVGPU].
type Wanted struct {
	Type vgpu.Choice
	// UUID is for a mediated device.
	UUID string
	// Not are functions that are not taken, because somebody has them.
	Not []pci.Address
	// Instance is the GPU instance that is to be behind the type; nil for none.
	Instance *int
}

// MakeVGPU plans a vGPU of a type: on the first function that has one left. Its errors are of type [Refusal].
func MakeVGPU(gpu *vgpu.GPU, w Wanted) (Plan, error) {
	if w.Type.Interface == vgpu.Mediated {
		if err := unused(gpu, w.UUID); err != nil {
			return Plan{}, err
		}
	}
	for _, f := range gpu.Functions {
		switch {
		case f.Interface != w.Type.Interface || slices.Contains(w.Not, f.Address) || !hasLeft(f, w):
		case f.Interface == vgpu.Mediated:
			return mediated(f, w), nil
		default:
			return typed(f, w), nil
		}
	}
	return Plan{}, refuseVGPU(gpu, ErrFull, left(gpu, w))
}

// hasLeft tells whether a function can have a vGPU of a type. One that is backed is told only once there is an instance.
func hasLeft(f vgpu.Function, w Wanted) bool {
	if w.Instance != nil && f.HasInstance {
		return f.Current == ""
	}
	at := slices.IndexFunc(f.Types, func(t vgpu.Type) bool { return t.ID == w.Type.ID })
	return at >= 0 && f.Types[at].Free > 0 && f.Current == ""
}

// BackFunction plans to have a GPU instance behind the first free function that has none, so that the function tells which types
// it can have then.
func BackFunction(gpu *vgpu.GPU, instance int, not []pci.Address) (Plan, error) {
	for _, f := range gpu.Functions {
		if f.Interface == vgpu.Vendor && f.Current == "" && f.HasInstance && !slices.Contains(not, f.Address) {
			return typed(f, Wanted{Instance: &instance}), nil
		}
	}
	return Plan{}, refuseVGPU(gpu, ErrFull, "no virtual function is free")
}

func refuseVGPU(gpu *vgpu.GPU, why error, detail string) error {
	return &Refusal{Asked: gpu.Address, Device: gpu.Address, Why: why, Detail: detail}
}

func unused(gpu *vgpu.GPU, uuid string) error {
	if !vgpu.ValidUUID(uuid) {
		return refuseVGPU(gpu, ErrUUID, strconv.QuoteToASCII(uuid))
	}
	for _, f := range gpu.Functions {
		if slices.ContainsFunc(f.Made, func(m vgpu.Made) bool { return m.UUID == uuid }) {
			return refuseVGPU(gpu, ErrUUIDTaken, fmt.Sprintf("%s on %s", uuid, f.Address))
		}
	}
	return nil
}

// left tells what there is instead of the type that was wanted.
func left(gpu *vgpu.GPU, w Wanted) string {
	var parts []string
	for _, c := range gpu.Choices() {
		if c.Free > 0 {
			parts = append(parts, fmt.Sprintf("%s (%+q, %d left)", c.ID, c.Name, c.Free))
		}
	}
	text := w.Type.ID
	if len(parts) > 0 {
		return text + "; there are " + listed(parts)
	}
	return text + ": release one first: `divvy vm ls` lists those of Divvy's"
}

func mediated(f vgpu.Function, w Wanted) Plan {
	folder := DeviceFolder(f.Address) + "/mdev_supported_types/" + w.Type.ID
	made := MediatedFolder(w.UUID)
	return Plan{
		Form: FormVGPU, Device: f.Address, Group: facts.NoGroup,
		VGPU: &VGPU{Interface: vgpu.Mediated, Type: w.Type.ID, Name: w.Type.Name, UUID: w.UUID},
		Steps: []Step{{
			Kind: Mediate, Device: f.Address, State: State{Path: made + "/mdev_type", Link: true}, After: w.Type.ID,
			Do: Write{Path: folder + "/create", Value: w.UUID}, Undo: Write{Path: made + "/remove", Value: "1", Group: made + "/iommu_group"},
		}},
	}
}

// MediatedFolder is where sysfs has a mediated device, below /sys.
func MediatedFolder(uuid string) string { return "bus/mdev/devices/" + uuid }

func typed(f vgpu.Function, w Wanted) Plan {
	folder := DeviceFolder(f.Address)
	p := Plan{
		Form: FormVGPU, Device: f.Address, Group: f.Group, Members: []pci.Address{f.Address},
		VGPU: &VGPU{Interface: vgpu.Vendor, Type: w.Type.ID, Name: w.Type.Name},
	}
	if f.Group != facts.NoGroup {
		p.Nodes = []string{fmt.Sprintf("/dev/vfio/%d", f.Group)}
	}
	if w.Instance != nil && f.HasInstance && f.Instance != strconv.Itoa(*w.Instance) {
		p.Steps = append(p.Steps, alike(Back, f.Address, folder+"/nvidia/gpu_instance_id", f.Instance, strconv.Itoa(*w.Instance)))
	}
	if w.Type.ID != "" {
		p.Steps = append(p.Steps, alike(Type, f.Address, folder+"/nvidia/current_vgpu_type", "0", w.Type.ID))
	}
	for i := range p.Steps {
		p.Steps[i].Do.Group, p.Steps[i].Undo.Group = groupOf(f.Address), groupOf(f.Address)
	}
	return p
}

// alike is a step whose file tells the same whoever wrote it.
func alike(kind Kind, device pci.Address, file, before, after string) Step {
	return Step{
		Kind: kind, Device: device, Alike: true, State: State{Path: file}, Before: before, After: after,
		Do: Write{Path: file, Value: after}, Undo: Write{Path: file, Value: before},
	}
}

// Whole tells whether a step's file takes a value or changes nothing.
func (k Kind) Whole() bool { return slices.Contains([]Kind{Withhold, Enable, Mediate, Back, Type}, k) }

// describe names a step of a vGPU for people.
func (s Step) describe() string {
	switch s.Kind {
	case Withhold:
		return fmt.Sprintf("keep drivers of the host from virtual functions of %s", s.Device)
	case Enable:
		return fmt.Sprintf("enable %s virtual functions of %s", s.After, s.Device)
	case Mediate:
		return fmt.Sprintf("make a mediated device %s of type %s on %s", s.Do.Value, s.After, s.Device)
	case Back:
		return fmt.Sprintf("have GPU instance %s behind %s", s.After, s.Device)
	case Type:
		return fmt.Sprintf("give %s the type %s", s.Device, s.After)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s", s.Kind, s.Device))
}
