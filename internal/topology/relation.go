package topology

import (
	"fmt"

	"github.com/divvy-gpu/divvy/internal/pci"
)

// Kind is how two devices reach each other, from near to far.
type Kind int

// The kinds, with the labels that nvidia-smi gives them.
const (
	Self   Kind = iota // X
	NVLink             // NV#: directly or through a switch
	PIX                // at most one PCIe bridge between each of them and what they share
	PXB                // several PCIe bridges, no host bridge
	PHB                // one host bridge
	NODE               // host bridges of one NUMA node
	SYS                // several NUMA nodes, or unknown
)

// Relation is a kind and, for NVLink, the number of links.
type Relation struct {
	Kind  Kind
	Links int
}

// String returns the label in the matrix.
func (r Relation) String() string {
	switch r.Kind {
	case Self:
		return "X"
	case NVLink:
		return fmt.Sprintf("NV%d", r.Links)
	case PIX:
		return "PIX"
	case PXB:
		return "PXB"
	case PHB:
		return "PHB"
	case NODE:
		return "NODE"
	default:
		return "SYS"
	}
}

// MarshalText makes relations readable in JSON.
func (r Relation) MarshalText() ([]byte, error) {
	return []byte(r.String()), nil
}

// Between returns the relation of two PCI devices by their PCI and NUMA positions alone. Devices of unknown NUMA node
// have relation SYS, unless they share a host bridge or the host has only one node.
func (h *Host) Between(a, b pci.Device) Relation {
	switch {
	case a.Address == b.Address:
		return Relation{Kind: Self}
	case a.HostBridge != b.HostBridge:
		if len(h.Nodes) == 1 || (a.NUMANode == b.NUMANode && a.NUMANode != pci.Unknown) {
			return Relation{Kind: NODE}
		}
		return Relation{Kind: SYS}
	}
	shared := 0
	for shared < len(a.Bridges) && shared < len(b.Bridges) && a.Bridges[shared] == b.Bridges[shared] {
		shared++
	}
	switch {
	case shared == 0:
		return Relation{Kind: PHB}
	case len(a.Bridges)-shared <= 1 && len(b.Bridges)-shared <= 1:
		return Relation{Kind: PIX}
	}
	return Relation{Kind: PXB}
}

// BetweenGPUs prefers NVLink to PCIe.
func (h *Host) BetweenGPUs(a, b GPU) Relation {
	if a.Device.Address != b.Device.Address {
		if links := nvlinks(a, b); links > 0 {
			return Relation{Kind: NVLink, Links: links}
		}
	}
	return h.Between(a.Device, b.Device)
}

// nvlinks counts the links from a to b. Through switches, a GPU reaches every other of its clique with all its
// links, so the GPU with fewer links decides.
func nvlinks(a, b GPU) int {
	direct := 0
	for _, link := range a.Links {
		if !link.Switch && link.Remote == b.Device.Address {
			direct++
		}
	}
	if direct > 0 || a.Clique != b.Clique {
		return direct
	}
	return min(switched(a), switched(b))
}

func switched(gpu GPU) int {
	count := 0
	for _, link := range gpu.Links {
		if link.Switch {
			count++
		}
	}
	return count
}

// Matrix has a row and a column for every GPU and then every NIC, in the host's order.
func (h *Host) Matrix() [][]Relation {
	count := len(h.GPUs) + len(h.NICs)
	matrix := make([][]Relation, count)
	for i := range matrix {
		matrix[i] = make([]Relation, count)
		for j := range matrix[i] {
			if i < len(h.GPUs) && j < len(h.GPUs) {
				matrix[i][j] = h.BetweenGPUs(h.GPUs[i], h.GPUs[j])
			} else {
				matrix[i][j] = h.Between(h.device(i), h.device(j))
			}
		}
	}
	return matrix
}

func (h *Host) device(i int) pci.Device {
	if i < len(h.GPUs) {
		return h.GPUs[i].Device
	}
	return h.NICs[i-len(h.GPUs)].Device
}
