package alloc

import "math"

// cell is what a GPU has free, in thousandths of its memory and of its time,
// rounded down. A GPU that has tenants is below 1000.
type cell struct{ memory, cores uint16 }

// state is what a node has free, without names: every policy values equal states
// the same. The fullest GPUs are last, and positions beyond the kind's GPUs are
// zero, so that states can be compared with ==.
type state struct {
	kind        int32
	cpu, memory int32 // thousandths of a processor; MiB, both at most MaxInt32
	gpus        [MaxGPUs]cell
}

// less orders cells by what they have free.
func (c cell) less(d cell) bool {
	return c.memory < d.memory || c.memory == d.memory && c.cores < d.cores
}

// takes reports whether a share fits.
func (c cell) takes(memory, cores uint16) bool {
	return c.memory >= memory && c.cores >= cores
}

// free is the part of the GPU that is free in both memory and time.
func (c cell) free() int { return int(min(c.memory, c.cores)) }

// take subtracts a share from the GPU at position i and keeps the order.
func (s *state) take(i int, memory, cores uint16) {
	left := cell{s.gpus[i].memory - min(memory, s.gpus[i].memory), s.gpus[i].cores - min(cores, s.gpus[i].cores)}
	for ; i+1 < MaxGPUs && left.less(s.gpus[i+1]); i++ {
		s.gpus[i] = s.gpus[i+1]
	}
	s.gpus[i] = left
}

// freeGPU is the sum of what the GPUs have free, in thousandths of a GPU.
func (s *state) freeGPU() int {
	sum := 0
	for _, c := range s.gpus {
		sum += c.free()
	}
	return sum
}

// entry is what the inventory keeps of a node: its state, and which GPU has each
// position in it.
type entry struct {
	state state
	gpu   [MaxGPUs]uint8
	// cpu and memory are what is free, exactly.
	cpu    int64
	memory uint64
	// worth is that of the state at version, see workload.
	worth   int32
	version uint32
	// held counts tenants by group, for the clustering baseline.
	held [groups]int32
	// absent tells that there is no node at the position.
	absent bool
	// hash is equal for equal states.
	hash uint64
}

// refresh computes the entry from the node.
func (r *entry) refresh(n *Node) {
	r.version = 0
	r.cpu = n.CPU - n.CPUUsed
	r.memory = n.Memory - min(n.MemoryUsed, n.Memory)
	r.state.cpu = clamp(r.cpu)
	r.state.memory = clamp(int64(r.memory >> 20))
	var cells [MaxGPUs]cell
	for i := range n.GPUs {
		c := cellOf(&n.GPUs[i])
		at := i
		for ; at > 0 && cells[at-1].less(c); at-- {
			cells[at], r.gpu[at] = cells[at-1], r.gpu[at-1]
		}
		cells[at], r.gpu[at] = c, uint8(i)
	}
	r.state.gpus = cells
	r.hash = r.state.hash()
}

// hash mixes everything in a state.
func (s *state) hash() uint64 {
	const odd = 0x9e3779b97f4a7c15
	h := (uint64(uint32(s.kind))<<32 ^ uint64(uint32(s.cpu))) * odd
	h = (h ^ h>>32 ^ uint64(uint32(s.memory))) * odd
	for i := 0; i < MaxGPUs; i += 2 {
		a, b := s.gpus[i], s.gpus[i+1]
		if a == (cell{}) {
			break // all others have nothing free either
		}
		h = (h ^ h>>32 ^ uint64(a.memory)<<48 ^ uint64(a.cores)<<32 ^ uint64(b.memory)<<16 ^ uint64(b.cores)) * odd
	}
	return h ^ h>>29
}

// cellOf returns what a GPU has free for plain requests.
func cellOf(g *GPU) cell {
	if g.Fault != "" || g.Fence != "" || g.aside || len(g.Profiles) > 0 || g.Capacity == 0 || g.Slots > 0 && g.Tenants >= g.Slots {
		return cell{}
	}
	return cell{uint16(thousandths(g.FreeMemory(), g.Capacity)), uint16(g.FreeCores() * 10)}
}

// thousandths is 1000 n/of, rounded down; n is at most of.
func thousandths(n, of uint64) uint64 {
	for n > math.MaxUint64/1000 {
		n, of = n>>1, of>>1
	}
	return n * 1000 / of
}

func clamp(n int64) int32 { return int32(max(0, min(n, math.MaxInt32))) }

// memo remembers what was computed of states. Each state has one place, which it shares with others, so that its size
// is bounded. It has a place for a few dozen states for each node.
type memo struct {
	places []remembered
	mask   uint64
}

// remembered is a value of a state at a version of the workload; no version is 0.
type remembered struct {
	state   state
	version uint32
	value   int64
}

const (
	placesPerNode           = 64
	leastPlaces, mostPlaces = 1 << 10, 1 << 17
)

// slot is the place of a state.
func (m *memo) slot(w *workload, s *state) *remembered {
	if m.places == nil || len(m.places) < mostPlaces && len(m.places) < placesPerNode*len(w.inv.nodes) {
		size := leastPlaces
		for size < mostPlaces && size < placesPerNode*len(w.inv.nodes) {
			size *= 2
		}
		m.places, m.mask = make([]remembered, size), uint64(size-1)
	}
	return &m.places[s.hash()&m.mask]
}
