package alloc

// The published policies relate a node's processors and GPUs to those of a large
// node: 128 processors and 8 GPUs.
const (
	fullCPU = 128_000
	fullGPU = 8_000
)

// BestFit prefers the node that is left with the least free, where processors and
// GPUs count alike (published). The score is in percent of a large node.
type BestFit struct{}

func (BestFit) bits() int { return 11 }
func (BestFit) score(o *option) uint64 {
	left := int64(o.after.cpu)*(fullGPU/1000)*50 + int64(o.after.freeGPU())*(fullCPU/1000)*50
	return uint64((left + fullCPU*fullGPU/1000 - 1) / (fullCPU * fullGPU / 1000))
}

// Spread prefers the node, and on it the GPU, with the most free.
type Spread struct{}

func (Spread) bits() int { return 32 }
func (Spread) score(o *option) uint64 {
	if o.shape.request.Count == 0 {
		return 1<<32 - 1 - uint64(o.after.cpu)
	}
	most := cellOf(&o.inv.nodes[o.node].GPUs[o.gpu]).free()
	return uint64((1<<15-o.before.freeGPU())<<10 + 1000 - most)
}

// DotProduct prefers the node with the smallest dot product of what it has free
// and what the request takes (published).
type DotProduct struct{}

func (DotProduct) bits() int { return 16 }
func (DotProduct) score(o *option) uint64 {
	gpu := int64(o.before.freeGPU())
	asked := gpu - int64(o.after.freeGPU())
	// 100 (1 - (c/C c'/C + g/G g'/G)/2) cut to a whole number, in 10^-6 before.
	product := int64(o.before.cpu)*int64(o.shape.cpu)*1e6/(fullCPU*fullCPU) + gpu*asked*1e6/(fullGPU*fullGPU)
	return uint64(100 - max(0, (100*(2e6-product))/2e6))
}

// Packing prefers GPUs in use, then nodes in use, then small idle nodes
// (published).
type Packing struct{}

func (Packing) bits() int { return 7 }
func (Packing) score(o *option) uint64 {
	if o.shape.request.Count == 0 {
		return 100
	}
	gpus := len(o.inv.kinds.all[o.before.kind].gpus)
	idle, opened, free := 0, 0, 0
	for i := range gpus {
		if o.before.gpus[i].free() == 1000 {
			idle++
		}
		if o.after.gpus[i].free() == 1000 {
			opened--
		}
	}
	opened += idle
	if opened == 0 {
		free = cellOf(&o.inv.nodes[o.node].GPUs[o.gpu]).free()
	}
	switch {
	case idle == gpus:
		return uint64(100 - max(33-gpus, gpus))
	case opened > 0:
		return uint64(100 - max(50-opened, 33))
	}
	return uint64(100 - max(100-free/10, 50))
}

// Clustering prefers nodes that hold requests of the same number of GPUs only
// (published).
type Clustering struct{}

func (Clustering) bits() int { return 7 }
func (Clustering) score(o *option) uint64 {
	if o.shape.request.Count == 0 {
		return 100
	}
	held := &o.inv.entries[o.node].held
	same, others := held[o.shape.group] > 0, false
	for g := groupShare; g < groups; g++ {
		others = others || g != o.shape.group && held[g] > 0
	}
	points := 25 * (fullGPU - min(fullGPU, o.before.freeGPU())) / fullGPU
	switch {
	case same && !others:
		points += 75
	case same:
		points += 50
	case !others:
		points += 25
	}
	return uint64(100 - points)
}

// Random chooses any node, and with GPUs any GPU of it.
type Random struct {
	Seed uint64
	GPUs bool
}

func (Random) bits() int { return 18 }
func (r Random) score(o *option) uint64 {
	device := uint64(0)
	if r.GPUs {
		device = uint64(o.gpu) + 1
	}
	return scatter(scatter(scatter(r.Seed^o.inv.observed)^uint64(o.node))^device) >> 46
}

// scatter is the finaliser of MurmurHash3: every bit of n changes half the bits.
func scatter(n uint64) uint64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ n>>33) * 0xff51afd7ed558ccd
	n = (n ^ n>>33) * 0xc4ceb9fe1a85ec53
	return n ^ n>>33
}

// Topology prefers GPUs that are near to each other.
type Topology struct{}

func (Topology) bits() int { return 10 }
func (Topology) score(o *option) uint64 {
	return uint64(o.spread)
}
