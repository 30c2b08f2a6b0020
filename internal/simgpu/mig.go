package simgpu

import (
	"fmt"
	"regexp"
)

// MIGProfile is one profile of GPU instances of a model.
type MIGProfile struct {
	// Name is NVIDIA's, without "MIG" in front of it.
	Name string `yaml:"name"`
	// Kind is the rest of NVML's constant NVML_GPU_INSTANCE_PROFILE_.
	Kind string `yaml:"kind"`
	// ID is what NVML and nvidia-smi call it on this model.
	ID uint32 `yaml:"id"`
	// Slices are compute slices, Size memory slices.
	Slices uint32 `yaml:"slices"`
	Size   uint32 `yaml:"size"`
	// Starts are the memory slices where one may begin.
	Starts []uint32 `yaml:"starts"`
	// Instances is how many there can be at once.
	Instances       uint32 `yaml:"instances"`
	Memory          Bytes  `yaml:"memory"`
	Multiprocessors uint32 `yaml:"multiprocessors"`
	CopyEngines     uint32 `yaml:"copyEngines"`
	Decoders        uint32 `yaml:"decoders"`
	JPEGs           uint32 `yaml:"jpegs"`
	OFAs            uint32 `yaml:"ofas"`
}

// The numbers of NVML's constants NVML_GPU_INSTANCE_PROFILE_ in the NVML API reference.
var migKinds = map[string]uint32{
	"1_SLICE": 0, "2_SLICE": 1, "3_SLICE": 2, "4_SLICE": 3, "7_SLICE": 4, "1_SLICE_REV1": 7, "2_SLICE_REV1": 8, "1_SLICE_REV2": 9,
}

// migSlices is the most memory slices of a GPU.
const migSlices = 8

var migNameForm = regexp.MustCompile(`^\dg\.\d{1,3}gb(\+me)?$`)

func (g *Model) validateMIG(f *faults) {
	const field = "gpu.migProfiles"
	if len(g.MIGProfiles) > 0 && !g.MIG {
		f.add(field, "the model has no MIG: set gpu.mig, or leave them out")
	}
	if len(g.MIGProfiles) > SimMIGProfilesMax {
		f.add(field, "more than %d profiles", SimMIGProfilesMax)
	}
	ids, kinds := map[uint32]bool{}, map[string]bool{}
	for i, p := range g.MIGProfiles {
		field := fmt.Sprintf("%s[%d]", field, i)
		p.validate(f, field, g)
		if ids[p.ID] || kinds[p.Kind] {
			f.add(field, "another profile has this id or kind")
		}
		ids[p.ID], kinds[p.Kind] = true, true
	}
}

func (p MIGProfile) validate(f *faults, field string, g *Model) {
	f.match(field+".name", p.Name, migNameForm, "1g.10gb or 1g.10gb+me")
	f.oneOf(field+".kind", p.Kind, keysOf(migKinds))
	f.between(field+".slices", uint64(p.Slices), 1, migSlices)
	if p.Size == 0 || p.Size&(p.Size-1) != 0 || p.Size > g.migSlices() {
		f.add(field+".size", "%d is not a power of two up to %d", p.Size, g.migSlices())
		return
	}
	f.between(field+".instances", uint64(p.Instances), 1, migSlices)
	f.between(field+".multiprocessors", uint64(p.Multiprocessors), 1, 1024)
	f.amount(field+".memory", p.Memory, 1<<20, 4<<40)
	if len(p.Starts) == 0 {
		f.add(field+".starts", "an instance must begin somewhere")
	}
	for _, start := range p.Starts {
		if start%p.Size != 0 || start+p.Size > g.migSlices() {
			f.add(field+".starts", "%d: %d memory slices of %d cannot begin there", start, p.Size, g.migSlices())
		}
	}
}

// migSlices is how many memory slices a GPU has: those of its widest profile.
func (g *Model) migSlices() uint32 {
	most := uint32(0)
	for _, p := range g.MIGProfiles {
		if p.Size <= migSlices {
			most = max(most, p.Size)
		}
	}
	return most
}

// imageMIG writes the model's profiles into the machine's description.
func (m *Machine) imageMIG(image *SimMachine) {
	image.MIGSlices = m.GPU.migSlices()
	for i, p := range m.GPU.MIGProfiles {
		to := &image.MIGProfiles[i]
		copy(to.Name[:len(to.Name)-1], p.Name)
		to.Kind, to.ID, to.Slices, to.Size, to.Instances = migKinds[p.Kind], p.ID, p.Slices, p.Size, p.Instances
		for _, start := range p.Starts {
			to.Starts |= 1 << start
		}
		to.Multiprocessors, to.CopyEngines = min(p.Multiprocessors, m.GPU.Multiprocessors), p.CopyEngines
		to.Decoders, to.Jpegs, to.Ofas = p.Decoders, p.JPEGs, p.OFAs
		// A machine that was given less memory has smaller instances.
		to.MemoryMib = uint64(min(p.Memory, (m.GPU.Memory-m.GPU.Reserved)*Bytes(p.Size)/Bytes(image.MIGSlices))) >> 20
		image.MIGProfileCount++
	}
}
