package topology

import (
	"fmt"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// relations are the allocator's words for ours.
var relations = map[Kind]alloc.Relation{
	NVLink: alloc.RelationNVLink,
	PIX:    alloc.RelationSwitch,
	PXB:    alloc.RelationSwitches,
	PHB:    alloc.RelationHost,
	NODE:   alloc.RelationNUMA,
	SYS:    alloc.RelationSystem,
	// A GPU is as near to itself as can be.
	Self: alloc.RelationNVLink,
}

// Place tells the allocator's node how near its GPUs and adapters are. The node's GPUs are known by UUID and may be
// fewer than the host's; one that the host does not have is an error.
func (h *Host) Place(node *alloc.Node) error {
	gpus := make([]GPU, len(node.GPUs))
	for i, wanted := range node.GPUs {
		found := false
		for _, gpu := range h.GPUs {
			if gpu.UUID == wanted.UUID {
				gpus[i], found = gpu, true
			}
		}
		if !found {
			return fmt.Errorf("place GPU %s of node %s: %w", wanted.UUID, node.Name, ErrUnplaced)
		}
	}
	near := make([][]alloc.Relation, len(gpus))
	for i, a := range gpus {
		for _, b := range gpus {
			near[i] = append(near[i], relations[h.BetweenGPUs(a, b).Kind])
		}
	}
	nics := make([]alloc.NIC, len(h.NICs))
	for i, nic := range h.NICs {
		nics[i].Name = nic.Name
		for _, gpu := range gpus {
			nics[i].Near = append(nics[i].Near, relations[h.Between(gpu.Device, nic.Device).Kind])
		}
	}
	node.Near, node.NICs = near, nics
	return nil
}
