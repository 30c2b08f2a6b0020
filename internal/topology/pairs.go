package topology

// Reach is how near a network adapter is to a GPU with which it makes a pair.
type Reach int

// The reaches, from near to far.
const (
	// ReachSwitch is one PCIe switch, or several without the host bridge between them.
	ReachSwitch Reach = iota
	// ReachBridge is one host bridge.
	ReachBridge
	// ReachSocket is one NUMA node.
	ReachSocket
	reaches
)

// Reaches is how many there are.
const Reaches = int(reaches)

// Pairs are the adapters of each GPU, in the host's order of both.
type Pairs struct {
	// NICs has the positions of the adapters of each GPU that are just so near.
	NICs [][Reaches][]int
}

// Pairs returns which adapters each GPU can make a pair with.
func (h *Host) Pairs() Pairs {
	all := Pairs{NICs: make([][Reaches][]int, len(h.GPUs))}
	for i, gpu := range h.GPUs {
		for k, nic := range h.NICs {
			reach := reaches
			switch h.Between(gpu.Device, nic.Device).Kind {
			case PIX, PXB:
				reach = ReachSwitch
			case PHB:
				reach = ReachBridge
			case NODE:
				reach = ReachSocket
			}
			if reach < reaches {
				all.NICs[i][reach] = append(all.NICs[i][reach], k)
			}
		}
	}
	return all
}

// Most returns how many GPUs have an adapter up to a reach, and how many of them can have one of their own at a time.
func (p *Pairs) Most(reach Reach) (gpus, own int) {
	owner := map[int]int{}
	for i := range p.NICs {
		if len(p.upTo(i, reach)) > 0 {
			gpus++
		}
		if p.augment(i, reach, owner, map[int]bool{}) {
			own++
		}
	}
	return gpus, own
}

func (p *Pairs) upTo(gpu int, reach Reach) (nics []int) {
	for r := range reach + 1 {
		nics = append(nics, p.NICs[gpu][r]...)
	}
	return nics
}

// augment gives a GPU an adapter of its own, and others another one for that.
func (p *Pairs) augment(gpu int, reach Reach, owner map[int]int, seen map[int]bool) bool {
	for _, nic := range p.upTo(gpu, reach) {
		if seen[nic] {
			continue
		}
		seen[nic] = true
		other, taken := owner[nic]
		if !taken || p.augment(other, reach, owner, seen) {
			owner[nic] = gpu
			return true
		}
	}
	return false
}
