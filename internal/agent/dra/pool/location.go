package pool

import (
	"slices"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/topology"
)

// Locations returns where each GPU of a host is, by UUID.
func Locations(host *topology.Host) map[string]Location {
	locations := make(map[string]Location, len(host.GPUs))
	for i := range host.GPUs {
		gpu := &host.GPUs[i]
		location := Location{
			PCI: gpu.Device.Address.String(), Root: gpu.Device.HostBridge, Switch: outerSwitch(gpu.Device),
			NUMANode: gpu.Device.NUMANode, Clique: clique(host, gpu),
		}
		if location.NUMANode == pci.Unknown && len(host.Nodes) == 1 {
			location.NUMANode = host.Nodes[0].Number // firmware of hosts with one node often tells none
		}
		locations[gpu.UUID] = location
	}
	return locations
}

// outerSwitch is the upstream port below the root port of a device: devices that share it reach each other without the
// host bridge, through one switch or several. Where there is no switch, nothing lies between root port and device; a
// switch has a port upstream and one for the device.
func outerSwitch(device pci.Device) string {
	if len(device.Bridges) < 3 {
		return ""
	}
	return device.Bridges[1].String()
}

// clique names the GPUs that all reach each other by NVLink: by the driver's name where it has one, which is the same
// on every host of the domain, otherwise by the first of them. GPUs that are linked, but not each
// with each, have no clique.
func clique(host *topology.Host, gpu *topology.GPU) string {
	if gpu.Clique != "" {
		return gpu.Clique
	}
	members := linked(host, gpu)
	if len(members) < 2 {
		return ""
	}
	for _, member := range members {
		if !slices.Equal(linked(host, member), members) {
			return ""
		}
	}
	return members[0].UUID
}

// linked lists, in the host's order, a GPU and all that it reaches by NVLink.
func linked(host *topology.Host, gpu *topology.GPU) []*topology.GPU {
	var reached []*topology.GPU
	for i := range host.GPUs {
		other := &host.GPUs[i]
		if other == gpu || host.BetweenGPUs(*gpu, *other).Kind == topology.NVLink {
			reached = append(reached, other)
		}
	}
	return reached
}
