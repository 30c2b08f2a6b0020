package pool

import (
	"cmp"
	"slices"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/topology"
)

// Locations returns where each GPU of a host is, by UUID.
func Locations(host *topology.Host) map[string]Location {
	locations := make(map[string]Location, len(host.GPUs))
	for i := range host.GPUs {
		gpu := &host.GPUs[i]
		location := LocationOf(gpu.Device, host.Nodes)
		location.Clique = clique(host, gpu)
		locations[gpu.UUID] = location
	}
	return locations
}

// LocationOf returns where a device is, of a host with these nodes.
func LocationOf(device pci.Device, nodes []topology.Node) Location {
	location := Location{PCI: device.Address.String(), Root: device.HostBridge, Switch: device.OuterSwitch(), NUMANode: device.NUMANode}
	if location.NUMANode == pci.Unknown && len(nodes) == 1 {
		location.NUMANode = nodes[0].Number // firmware of hosts with one node often tells none
	}
	return location
}

// meets is what a device has in common with those that it reaches without the host bridge. A device below no switch has this
// with none: its own address is there so that a constraint can name it beside other kinds of places.
func (l *Location) meets() string { return cmp.Or(l.Switch, l.PCI) }

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
