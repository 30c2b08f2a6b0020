package gang

import (
	"cmp"
	"slices"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// kinds is how many groups the exact search takes.
const kinds = 3

// table has, for numbers of members of the first and second group, how many of the third there is room for besides; -1
// where there is no room for so many of the first two.
type table [][]int16

// solver finds for how many members of a few groups there is room in a domain, by all numbers of them on each node. It
// knows the most there can be, which an order of members need not find.
type solver struct {
	groups []*group
	counts [kinds]int
	nodes  []int
	rooms  []alloc.JointRoom
	// free is of each node alone, sums of the nodes before each.
	free, sums []table
}

// exact places members by the numbers that fit on each node. It does nothing where that is no better than an order, not
// possible, or too much work.
func (p *planner) exact(d *domain) {
	if p.gang.ShareGPUs {
		return
	}
	s := &solver{}
	for _, g := range p.groups {
		if g.left > 0 {
			s.groups = append(s.groups, g)
		}
	}
	if len(s.groups) < 2 || len(s.groups) > kinds {
		return
	}
	// The tables are least where the last group is the largest.
	slices.SortStableFunc(s.groups, func(a, b *group) int { return cmp.Compare(a.left, b.left) })
	if !s.prepare(p, d) || !s.solve(p) {
		return
	}
	s.place(p, d, s.numbers())
}

// prepare finds the room of each node, and reports whether the search is possible.
func (s *solver) prepare(p *planner, d *domain) bool {
	var pods []*alloc.Pod
	for i, g := range s.groups {
		pods = append(pods, g.pod)
		s.counts[kinds-len(s.groups)+i] = g.left
	}
	joint, ok := p.inv.Joint(pods)
	if !ok {
		return false
	}
	for _, node := range d.nodes {
		among := true
		for _, g := range s.groups {
			among = among && (g.among == nil || g.among.Has(node))
		}
		if among {
			s.nodes = append(s.nodes, node)
			s.rooms = append(s.rooms, joint.At(node))
		}
	}
	return true
}

// fits reports whether a node has room for numbers of members.
func (s *solver) fits(room *alloc.JointRoom, a, b, c int) bool {
	var numbers [kinds]int
	copy(numbers[:], []int{a, b, c}[kinds-len(s.groups):])
	return room.Fits(numbers)
}

func (s *solver) newTable() table {
	t := make(table, s.counts[0]+1)
	for a := range t {
		t[a] = make([]int16, s.counts[1]+1)
		for b := range t[a] {
			t[a][b] = -1
		}
	}
	return t
}

// alone is the table of one node, as far as there is room.
func (s *solver) alone(room *alloc.JointRoom) (free table) {
	for a := 0; a <= s.counts[0] && s.fits(room, a, 0, 0); a++ {
		free = append(free, nil)
		for b := 0; b <= s.counts[1] && s.fits(room, a, b, 0); b++ {
			c := 0
			for c < s.counts[2] && s.fits(room, a, b, c+1) {
				c++
			}
			free[a] = append(free[a], int16(c))
		}
	}
	return free
}

// solve adds one node after the other. It reports false where that is too much work.
func (s *solver) solve(p *planner) bool {
	sum := s.newTable()
	sum[0][0] = 0
	s.sums = append(s.sums, sum)
	for i := range s.rooms {
		free := s.alone(&s.rooms[i])
		patterns := 0
		for a := range free {
			patterns += len(free[a])
		}
		if p.work += (s.counts[0] + 1) * (s.counts[1] + 1) * (patterns + 1); p.work > mostWork {
			return false
		}
		s.free = append(s.free, free)
		next := s.newTable()
		for a := range next {
			for b := range next[a] {
				next[a][b] = s.most(sum, free, a, b)
			}
		}
		s.sums, sum = append(s.sums, next), next
	}
	return true
}

// most is how many of the third group there is room for beside a and b of the others, if a node is added.
func (s *solver) most(sum, free table, a, b int) int16 {
	most := int16(-1)
	for x := 0; x <= a && x < len(free); x++ {
		for y := 0; y <= b && y < len(free[x]); y++ {
			if before := sum[a-x][b-y]; before >= 0 {
				most = max(most, min(int16(s.counts[2]), before+free[x][y]))
			}
		}
	}
	return most
}

// numbers are how many members of each group go to each node, so that as many as possible do.
func (s *solver) numbers() [][kinds]int {
	last := s.sums[len(s.sums)-1]
	a, b, c := 0, 0, -1
	for x := range last {
		for y := range last[x] {
			if last[x][y] >= 0 && x+y+int(last[x][y]) > a+b+c {
				a, b, c = x, y, int(last[x][y])
			}
		}
	}
	numbers := make([][kinds]int, len(s.nodes))
	for i := len(s.nodes) - 1; i >= 0; i-- {
		x, y := s.last(i, a, b, c)
		z := min(c, int(s.free[i][x][y]))
		numbers[i] = [kinds]int{x, y, z}
		a, b, c = a-x, b-y, c-z
	}
	return numbers
}

// last is how many of the first two groups are on a node where so many are on it and those before.
func (s *solver) last(i, a, b, c int) (x, y int) {
	for x := 0; x <= a && x < len(s.free[i]); x++ {
		for y := 0; y <= b && y < len(s.free[i][x]); y++ {
			if before := s.sums[i][a-x][b-y]; before >= 0 && int(before)+int(s.free[i][x][y]) >= c {
				return x, y
			}
		}
	}
	return 0, 0
}

// place reserves numbers of members on each node: first those whom the fewest GPUs serve.
func (s *solver) place(p *planner, d *domain, numbers [][kinds]int) {
	p.where = d
	missing := kinds - len(s.groups)
	for i, node := range s.nodes {
		order := make([]int, len(s.groups))
		for k := range order {
			order[k] = k
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.rooms[i].Serving(a), s.rooms[i].Serving(b)) })
		only := &alloc.NodeSet{}
		only.Add(node)
		part := &domain{nodes: []int{node}, set: only}
		for _, k := range order {
			g := s.groups[k]
			b := batch{group: g}
			for _, m := range g.members {
				if len(b.members) < numbers[i][missing+k] && !p.placed[m] {
					b.members = append(b.members, m)
				}
			}
			if len(b.members) > 0 {
				p.pourGroup(d, part, b)
			}
		}
	}
}
