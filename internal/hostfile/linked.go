package hostfile

import (
	"fmt"

	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/topology"
)

// Driver is the part of NVML that tells where GPUs are.
type Driver interface {
	GPUs() ([]nvml.GPU, error)
	NVLinks(index int) (links []nvml.NVLink, clique string)
}

// Linked asks the driver for the GPUs, their places and their links.
func Linked(d Driver) ([]topology.GPUInfo, error) {
	gpus, err := d.GPUs()
	if err != nil {
		return nil, err
	}
	infos := make([]topology.GPUInfo, len(gpus))
	for i, gpu := range gpus {
		address, err := pci.ParseAddress(gpu.PCI)
		if err != nil {
			return nil, fmt.Errorf("place GPU %d: %w", gpu.Index, err)
		}
		infos[i] = topology.GPUInfo{Index: gpu.Index, UUID: gpu.UUID, Name: gpu.Name, PCI: address}
		infos[i].Links, infos[i].Clique = links(d, gpu.Index)
	}
	return infos, nil
}

// links leaves out ends without an address: inside virtual machines the driver hides switches.
func links(d Driver, index int) ([]topology.Link, string) {
	active, clique := d.NVLinks(index)
	var known []topology.Link
	for _, link := range active {
		remote, err := pci.ParseAddress(link.Remote)
		if err != nil && !link.Switch {
			continue
		}
		known = append(known, topology.Link{Number: link.Number, Remote: remote, Switch: link.Switch})
	}
	return known, clique
}
