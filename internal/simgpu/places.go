package simgpu

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Values of nvmlBrandType_t and nvmlDeviceArchitecture_t in the NVML API
// reference.
var (
	brands        = map[string]uint32{"quadro": 1, "tesla": 2, "geforce": 5, "titan": 6, "nvidia": 14}
	architectures = map[string]uint32{"pascal": 4, "turing": 6, "ampere": 7, "ada": 8, "hopper": 9, "blackwell": 10}
)

func keysOf(table map[string]uint32) []string {
	return slices.Sorted(maps.Keys(table))
}

var roles = []string{"gpu", "storage", "host"}

// validatePlaces checks where everything is: every address once, every switch
// and NUMA node that is named there.
func (m *Machine) validatePlaces(f *faults) {
	f.between("numaNodes", uint64(len(m.NUMANodes)), 1, MaxNodes)
	f.between("switches", uint64(len(m.Switches)), 0, MaxSwitches)
	f.between("gpus", uint64(len(m.GPUs)), 1, MaxGPUs)
	f.between("nics", uint64(len(m.NICs)), 0, MaxNICs)
	for i, node := range m.NUMANodes {
		field := fmt.Sprintf("numaNodes[%d].cpus", i)
		f.match(field, node.CPUs, cpusForm, "0-15,32-47")
		if _, err := parseCPUs(node.CPUs); err != nil && cpusForm.MatchString(node.CPUs) {
			f.add(field, "%v", err)
		}
	}
	seen := make(map[string]string)
	for i, s := range m.Switches {
		m.validatePlace(f, fmt.Sprintf("switches[%d]", i), s.PCI, GPU{HostBridge: s.HostBridge, NUMANode: s.NUMANode}, seen)
	}
	for i, g := range m.GPUs {
		field := fmt.Sprintf("gpus[%d]", i)
		m.validatePlace(f, field, g.PCI, g, seen)
		f.between(field+".multiprocessors", uint64(g.Multiprocessors), 0, 1024)
		if g.MIGMode && !m.GPU.MIG {
			f.add(field+".migMode", "the model has no MIG: set gpu.mig, or leave it out")
		}
	}
	for i, n := range m.NICs {
		field := fmt.Sprintf("nics[%d]", i)
		place := GPU{Switch: n.Switch, HostBridge: n.HostBridge, NUMANode: n.NUMANode}
		m.validatePlace(f, field, n.PCI, place, seen)
		f.oneOf(field+".role", n.Role, roles)
		if n.Name == "" || len(n.Name) > 15 {
			f.add(field+".name", "must have 1 to 15 characters")
		}
	}
}

func (m *Machine) validatePlace(f *faults, field, address string, place GPU, seen map[string]string) {
	f.match(field+".pci", address, pciForm, `"0000:3b:00.0"`)
	if other, ok := seen[address]; ok {
		f.add(field+".pci", "%s is also the address of %s", address, other)
	}
	seen[address] = field
	if place.Switch != "" {
		if m.switchAt(place.Switch) < 0 {
			f.add(field+".switch", "no switch has the address %q", place.Switch)
		}
		if place.HostBridge != "" || place.NUMANode != 0 {
			f.add(field, "under a switch host bridge and NUMA node are the switch's; leave them out")
		}
		return
	}
	f.match(field+".hostBridge", place.HostBridge, bridgeForm, `"pci0000:3a"`)
	if int(place.NUMANode) >= len(m.NUMANodes) {
		f.add(field+".numaNode", "%d, but the machine has %d NUMA nodes, numbered from 0", place.NUMANode, len(m.NUMANodes))
	}
}

// switchAt returns the place of the switch with that address, or -1.
func (m *Machine) switchAt(address string) int {
	return slices.IndexFunc(m.Switches, func(s Switch) bool { return s.PCI == address })
}

func (m *Machine) validateNVLink(f *faults) {
	link := m.NVLink
	if len(link.Pairs) > 0 && (link.Switches > 0 || link.Links > 0) {
		f.add("nvlink", "give either switches and links, or pairs")
	}
	if (link.Switches > 0) != (link.Links > 0) {
		f.add("nvlink", "switches and links come together")
	}
	f.between("nvlink.switches", uint64(link.Switches), 0, MaxSwitches)
	f.between("nvlink.links", uint64(link.Links), 0, MaxLinks)
	used := make([]uint64, len(m.GPUs))
	for i, pair := range link.Pairs {
		field := fmt.Sprintf("nvlink.pairs[%d]", i)
		f.between(field+".links", uint64(pair.Links), 1, MaxLinks)
		if len(pair.GPUs) != 2 || !m.hasGPU(pair.GPUs[0]) || !m.hasGPU(pair.GPUs[1]) || pair.GPUs[0] == pair.GPUs[1] {
			f.add(field+".gpus", "must be two different numbers from 0 to %d", len(m.GPUs)-1)
			continue
		}
		for _, gpu := range pair.GPUs {
			if used[gpu] += uint64(pair.Links); used[gpu] > MaxLinks {
				f.add(field+".links", "gives GPU %d more than %d links", gpu, MaxLinks)
			}
		}
	}
}

func (m *Machine) hasGPU(place int) bool {
	return place >= 0 && place < len(m.GPUs)
}

// place resolves where a device under a switch, or at a host bridge, is.
// switchPlace is -1 where there is no switch.
func (m *Machine) place(switchAddress, hostBridge string, node uint32) (switchPlace int, bridge string, numa uint32) {
	switchPlace = m.switchAt(switchAddress)
	if switchPlace < 0 {
		return -1, hostBridge, node
	}
	s := m.Switches[switchPlace]
	return switchPlace, s.HostBridge, s.NUMANode
}

// byPCI returns the GPUs' places in the file in the order in which NVML
// numbers them.
func (m *Machine) byPCI() []int {
	order := make([]int, len(m.GPUs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(paddedPCI(m.GPUs[a].PCI), paddedPCI(m.GPUs[b].PCI))
	})
	return order
}

// paddedPCI gives the domain 8 digits, as NVML prints it.
func paddedPCI(address string) string {
	domain, rest, _ := strings.Cut(address, ":")
	return fmt.Sprintf("%08s:%s", domain, rest)
}

// maxCPUs is the highest CPU number of a machine plus one.
const maxCPUs = 1024

// parseCPUs reads a list such as 0-15,32 into a mask of 64-bit words.
func parseCPUs(list string) ([maxCPUs / 64]uint64, error) {
	var mask [maxCPUs / 64]uint64
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		if err != nil {
			return mask, fmt.Errorf("read CPU %q: %w", first, err)
		}
		to, err := strconv.Atoi(last)
		if err != nil {
			return mask, fmt.Errorf("read CPU %q: %w", last, err)
		}
		if from > to || to >= maxCPUs {
			return mask, fmt.Errorf("CPUs %s: must rise and stay below %d", part, maxCPUs)
		}
		for cpu := from; cpu <= to; cpu++ {
			mask[cpu/64] |= 1 << (cpu % 64)
		}
	}
	return mask, nil
}
