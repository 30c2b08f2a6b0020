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
}

// cellOf returns what a GPU has free for plain requests.
func cellOf(g *GPU) cell {
	if g.Fault != "" || len(g.Profiles) > 0 || g.Capacity == 0 {
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
