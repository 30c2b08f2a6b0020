package simgpu

import (
	"encoding/binary"
	"strconv"
	"strings"
)

// image is the description that simgpuctl puts into the shared state: the
// machine with its GPUs in NVML's order and, from the seed, their identities.
// The machine has been validated.
func (m *Machine) image(seed string) []byte {
	image := SimMachine{
		Magic:   SimMagic,
		Version: SimVersion,
		Size:    SizeOfSimMachine,

		CudaVersion:   m.cudaVersion(),
		GPUCount:      uint32(len(m.GPUs)),
		NICCount:      uint32(len(m.NICs)),
		SwitchCount:   uint32(len(m.Switches)),
		NodeCount:     uint32(len(m.NUMANodes)),
		NvswitchCount: m.NVLink.Switches,

		AllocNs:        uint64(m.Costs.Alloc),
		LaunchNs:       uint64(m.Costs.Launch),
		LoadNs:         uint64(m.Costs.Load),
		KernelNs:       uint64(m.Costs.Kernel),
		EventNs:        uint64(m.Costs.Event),
		SliceNs:        uint64(m.Costs.TimeSlice),
		QueueDepth:     uint64(m.Costs.Queue),
		SampleWindowNs: uint64(m.Sampling.Window),
		SampleLagNs:    uint64(m.Sampling.Lag),
		VirtualClock:   uint64(flag(m.Clock == clockVirtual)),
		DeadHandles:    uint64(deadHandles[m.DeadHandles]),
		Figures:        uint64(figures[m.Sampling.Processes]),
		FiguresLagNs:   uint64(m.Sampling.ProcessLag),

		FaultNs:       uint64(m.Managed.Fault),
		FaultBatch:    uint64(m.Managed.Batch),
		ScatteredRate: uint64(m.Managed.Scattered),
		HalfDuplex:    uint64(duplexes[m.Managed.Duplex]),
		NamedTouched:  uint64(touching[m.Managed.Kernels]),
		HostBytes:     uint64(m.Managed.HostMemory),
	}
	copy(image.Name[:], m.Name)
	copy(image.DriverVersion[:], m.Driver.Version)
	for i, s := range m.Switches {
		image.Switches[i] = m.imagePlace(s.PCI, "", s.HostBridge, s.NUMANode)
	}
	for i, node := range m.NUMANodes {
		mask, err := parseCPUs(node.CPUs)
		if err == nil {
			image.Nodes[i].Cpus = mask
		}
	}
	for i, nic := range m.NICs {
		copy(image.Nics[i].Name[:], nic.Name)
		image.Nics[i].PCI = m.imagePlace(nic.PCI, nic.Switch, nic.HostBridge, nic.NUMANode)
		image.Nics[i].Role = roleNumber(nic.Role)
	}
	m.imageMIG(&image)
	order := m.byPCI()
	for i, place := range order {
		image.Gpus[i] = m.imageGPU(place, newIdentity(seed, i))
		image.Gpus[i].Minor = uint32(i)
		m.addLinks(&image.Gpus[i], place, order)
	}
	content, err := binary.Append(nil, binary.LittleEndian, image)
	if err != nil {
		return nil // the struct has only sized fields
	}
	return content
}

func (m *Machine) imageGPU(place int, id identity) SimGPU {
	model, at := m.GPU, m.GPUs[place]
	major, minor := versionParts(model.ComputeCapability)
	gpu := SimGPU{
		UUID:            id.uuid,
		PCI:             m.imagePlace(at.PCI, at.Switch, at.HostBridge, at.NUMANode),
		MemoryBytes:     uint64(model.Memory),
		ReservedBytes:   uint64(model.Reserved),
		ContextBytes:    uint64(model.Context),
		CodeBytes:       uint64(model.Code),
		Bar1Bytes:       uint64(model.BAR1),
		HostRate:        uint64(model.Bandwidth.Host),
		MemoryRate:      uint64(model.Bandwidth.Memory),
		Multiprocessors: model.Multiprocessors,
		ComputeMajor:    major,
		ComputeMinor:    minor,
		Brand:           brands[model.Brand],
		Architecture:    architectures[model.Architecture],
		GraphicsMhz:     model.Clocks.Graphics,
		MemoryMhz:       model.Clocks.Memory,
		PowerLimitWatts: model.PowerLimit,
		PcieGeneration:  model.PCIe.Generation,
		PcieWidth:       model.PCIe.Width,
		DeviceID:        hexadecimal(strings.TrimPrefix(model.DeviceID, "0x")),
		SubsystemID:     hexadecimal(strings.TrimPrefix(model.SubsystemID, "0x")),
		Ecc:             flag(model.ECC),
		MIG:             flag(model.MIG),
	}
	if at.MIGMode {
		gpu.MIG = SimMIGOn
	}
	if at.Multiprocessors > 0 {
		gpu.Multiprocessors = at.Multiprocessors
	}
	copy(gpu.Name[:], model.Name)
	copy(gpu.Serial[:], id.serial)
	return gpu
}

// addLinks gives a GPU its NVLinks: spread over the switches, or one group for
// each bridge. order translates places in the file to NVML's numbers.
func (m *Machine) addLinks(gpu *SimGPU, place int, order []int) {
	add := func(remote, number uint32) {
		gpu.Links[gpu.LinkCount] = SimLink{Remote: remote, RemotePlace: number}
		gpu.LinkCount++
	}
	for i := range m.NVLink.Links {
		add(SimRemoteSwitch, i*m.NVLink.Switches/m.NVLink.Links)
	}
	for _, pair := range m.NVLink.Pairs {
		for end, other := range []int{pair.GPUs[1], pair.GPUs[0]} {
			if pair.GPUs[end] != place {
				continue
			}
			for range pair.Links {
				add(SimRemoteGPU, numberOf(order, other))
			}
		}
	}
}

func numberOf(order []int, place int) uint32 {
	for number, p := range order {
		if p == place {
			return uint32(number)
		}
	}
	return 0
}

func (m *Machine) imagePlace(address, switchAddress, hostBridge string, node uint32) SimPCI {
	switchPlace, bridge, numa := m.place(switchAddress, hostBridge, node)
	image := SimPCI{SwitchPlace: SimNone, NUMANode: numa}
	if switchPlace >= 0 {
		image.SwitchPlace = uint32(switchPlace)
	}
	copy(image.HostBridge[:], bridge)
	// "0000:3b:00.0", checked by Validate.
	parts := strings.FieldsFunc(address, func(r rune) bool { return r == ':' || r == '.' })
	numbers := []*uint32{&image.Domain, &image.Bus, &image.Device, &image.Function}
	for i := range min(len(parts), len(numbers)) {
		*numbers[i] = hexadecimal(parts[i])
	}
	return image
}

func hexadecimal(text string) uint32 {
	n, err := strconv.ParseUint(text, 16, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

func flag(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}

func roleNumber(role string) uint32 {
	for number, name := range roles {
		if name == role {
			return uint32(number)
		}
	}
	return 0
}
