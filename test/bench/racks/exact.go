package racks

import (
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// mostKinds is how many kinds of members the exhaustive search takes.
const mostKinds = 3

// kind is equal members.
type kind struct {
	request    alloc.Request
	cpu        int64
	hostMemory uint64
	count      int
}

// Fits returns the racks that have room for all members, no two of which share a GPU. It is exhaustive: it knows all
// numbers of members of each kind that a node has room for, and joins them node by node.
func (c *Cluster) Fits(members []gang.Member) (racks []int) {
	kinds := kindsOf(members)
	rooms := make([]*room, c.Racks)
	for node, rack := range c.Of {
		if rooms[rack] == nil {
			rooms[rack] = newRoom(kinds)
		}
		if n := c.Inventory.Node(node); !rooms[rack].full() {
			rooms[rack].join(&n)
		}
	}
	for rack, r := range rooms {
		if r != nil && r.full() {
			racks = append(racks, rack)
		}
	}
	return racks
}

// kindsOf counts equal members; there are at most mostKinds kinds.
func kindsOf(members []gang.Member) (kinds [mostKinds]kind) {
	known := 0
next:
	for i := range members {
		p := &members[i].Pod
		one := kind{request: p.Claims[0][0], cpu: p.CPU, hostMemory: p.HostMemory}
		for j := range known {
			if k := &kinds[j]; k.request == one.request && k.cpu == one.cpu && k.hostMemory == one.hostMemory {
				k.count++
				continue next
			}
		}
		one.count = 1
		kinds[known] = one
		known++
	}
	return kinds
}

// room is for how many members some nodes have room: of the last kind so many, for each number of the other two.
type room struct {
	kinds [mostKinds]kind
	third [][]int // -1 where there is no room for so many of the first and second
}

func newRoom(kinds [mostKinds]kind) *room {
	r := &room{kinds: kinds}
	for a := range kinds[0].count + 1 {
		r.third = append(r.third, make([]int, kinds[1].count+1))
		for b := range r.third[a] {
			r.third[a][b] = -1
		}
	}
	r.third[0][0] = 0
	return r
}

// full reports whether there is room for all members.
func (r *room) full() bool {
	return r.third[r.kinds[0].count][r.kinds[1].count] >= r.kinds[2].count
}

// join adds a node.
func (r *room) join(n *alloc.Node) {
	free := r.free(n)
	for a := r.kinds[0].count; a >= 0; a-- {
		for b := r.kinds[1].count; b >= 0; b-- {
			// Smaller numbers than these are not changed yet.
			for x := 0; x <= a && x < len(free); x++ {
				for y := 0; y <= b && y < len(free[x]); y++ {
					if before := r.third[a-x][b-y]; before >= 0 && free[x][y] >= 0 {
						r.third[a][b] = max(r.third[a][b], min(r.kinds[2].count, before+free[x][y]))
					}
				}
			}
		}
	}
}

// free is how many of the third kind fit on a node, for each number of the other two.
func (r *room) free(n *alloc.Node) (free [][]int) {
	serving := r.serving(n)
	for a := 0; a <= r.kinds[0].count && r.fits(n, serving, [mostKinds]int{a, 0, 0}); a++ {
		free = append(free, nil)
		for b := 0; b <= r.kinds[1].count && r.fits(n, serving, [mostKinds]int{a, b, 0}); b++ {
			third := 0
			for third < r.kinds[2].count && r.fits(n, serving, [mostKinds]int{a, b, third + 1}) {
				third++
			}
			free[a] = append(free[a], third)
		}
	}
	return free
}

// serving is how many GPUs of a node serve at least one of each set of kinds.
func (r *room) serving(n *alloc.Node) (count [1 << mostKinds]int) {
	for i := range n.GPUs {
		g := &n.GPUs[i]
		set := 0
		for k := range r.kinds {
			q := &r.kinds[k].request
			if q.Whole && g.Tenants == 0 || !q.Whole && g.Granted+q.Memory.Of(g.Capacity) <= g.Capacity && g.Cores+q.Cores <= 100 {
				set |= 1 << k
			}
		}
		for of := range count {
			if of&set != 0 {
				count[of]++
			}
		}
	}
	return count
}

// fits reports whether a node has room for numbers of members. Each GPU serves one share, so by Hall's theorem there are
// enough GPUs if there are enough for each set of kinds.
func (r *room) fits(n *alloc.Node, serving [1 << mostKinds]int, numbers [mostKinds]int) bool {
	cpu, memory := n.CPUUsed, n.MemoryUsed
	for k, number := range numbers {
		cpu += int64(number) * r.kinds[k].cpu
		memory += uint64(number) * r.kinds[k].hostMemory
	}
	if cpu > n.CPU || memory > n.Memory {
		return false
	}
	for set, gpus := range serving {
		wanted := 0
		for k, number := range numbers {
			if set&(1<<k) != 0 {
				wanted += number * r.kinds[k].request.Count
			}
		}
		if wanted > gpus {
			return false
		}
	}
	return true
}
