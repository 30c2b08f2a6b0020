package turns

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/residency"
)

const (
	// firstRate is taken for the rate at which memory moves before any has moved, bytes a second: that of PCIe 3 with 16 lanes.
	firstRate = 12_000_000_000
	leastRate = 1_000_000_000
	// MostRate and leastRate bound what the tenants' pages can make of it.
	MostRate = 100_000_000_000
)

// machine is what is known of the GPUs. Numbers of GPUs stay the same.
type machine struct {
	numbers map[string]int // by UUID
	uuids   []string
	gpus    []residency.GPU
	moves   []window // when memory of some share moved
	thrash  []bool
	at      uint64 // when it was last noted whether memory moves
}

// number is that of a GPU.
func (m *machine) number(uuid string) int {
	n, known := m.numbers[uuid]
	if !known {
		n = len(m.gpus)
		if m.numbers == nil {
			m.numbers = map[string]int{}
		}
		m.numbers[uuid] = n
		m.uuids, m.gpus = append(m.uuids, uuid), append(m.gpus, residency.GPU{Rate: firstRate})
		m.moves, m.thrash = append(m.moves, window{}), append(m.thrash, false)
	}
	return n
}

// allow notes what swap shares may have together of each GPU.
func (m *machine) allow(rooms map[string]uint64) {
	for uuid, n := range m.numbers {
		m.gpus[n].Room = rooms[uuid]
	}
}

// measure sets the rate of each GPU to the median of those of its shares, among which firstRate is one where their number is
// even: beside others, a share that tells nonsense moves it no farther than to another's or to that. A GPU keeps its rate when
// they end.
func (m *machine) measure(tenants map[string]*share) {
	rates := map[int][]uint64{}
	for _, id := range slices.Sorted(maps.Keys(tenants)) {
		for i, n := range tenants[id].numbers {
			if rate := tenants[id].rates[i].value; rate > 0 {
				rates[n] = append(rates[n], rate)
			}
		}
	}
	for n, all := range rates {
		if len(all)%2 == 0 {
			all = append(all, firstRate)
		}
		slices.Sort(all)
		m.gpus[n].Rate = all[len(all)/2]
	}
}

// correct takes from what shares believe to be on a GPU what cannot be there beside the rest. The driver tells nobody whose
// memory it displaced; of those that are away it is the memory that came longest ago.
func (m *machine) correct(groups []*group) {
	excess := make([]uint64, len(m.gpus))
	for _, g := range groups {
		order := slices.Clone(g.shares)
		slices.SortStableFunc(order, func(a, b *share) int {
			return cmp.Or(compareBool(a.state != residency.Away, b.state != residency.Away), cmp.Compare(a.since, b.since))
		})
		for n := range excess {
			excess[n] = 0
		}
		for _, s := range order {
			for i, n := range s.numbers {
				excess[n] += s.there[i]
			}
		}
		for n := range excess {
			excess[n] -= min(excess[n], m.gpus[n].Room)
		}
		for _, s := range order {
			for i, n := range s.numbers {
				gone := min(excess[n], s.there[i])
				s.there[i], excess[n] = s.there[i]-gone, excess[n]-gone
			}
		}
	}
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// rate is what one share's moves tell of the rate on one GPU.
type rate struct {
	value         uint64 // bytes a second, 0 before the first
	bytes, moving uint64 // up to which it is measured
}

// enough is how many bytes have to move for a measurement.
const enough = 64 << 20

// learn takes the share's totals.
func (r *rate) learn(bytes, moving uint64) {
	if bytes < r.bytes || moving < r.moving { // another one writes them now, or nonsense
		r.bytes, r.moving = bytes, moving
		return
	}
	moved, took := bytes-r.bytes, moving-r.moving
	if moved < enough || took == 0 {
		return
	}
	r.bytes, r.moving = bytes, moving
	found := min(max(float64(moved)/float64(took)*float64(time.Second), leastRate), MostRate)
	if r.value > 0 {
		found = (found + 3*float64(r.value)) / 4
	}
	r.value = uint64(found)
}

// group are shares that have GPUs in common, directly or by others. Nothing that one group does concerns another.
type group struct {
	law    *residency.Law
	shares []*share
}

// decide asks the law and returns when it has to be asked again.
func (g *group) decide(now uint64, m *machine) (again uint64) {
	list := make([]residency.Share, 0, len(g.shares))
	for _, s := range g.shares {
		list = append(list, s.law(m))
	}
	orders, again := g.law.Decide(now, m.gpus, list)
	rooms := roomsOf(m, orders, list)
	for i, s := range g.shares {
		s.obey(now, &orders[i], rooms[i])
	}
	return again
}

// roomsOf is what each share may have on each GPU: what it needs, and what those leave that are or come there.
func roomsOf(m *machine, orders []residency.Order, list []residency.Share) [][]uint64 {
	taken := make([]uint64, len(m.gpus))
	for i := range orders {
		if present(orders[i].State) {
			for n, bytes := range list[i].Bytes {
				taken[n] += bytes
			}
		}
	}
	rooms := make([][]uint64, len(list))
	for i := range list {
		rooms[i] = make([]uint64, len(m.gpus))
		if !present(orders[i].State) {
			continue
		}
		for n, bytes := range list[i].Bytes {
			rooms[i][n] = bytes + m.gpus[n].Room - min(m.gpus[n].Room, taken[n])
		}
	}
	return rooms
}

func present(s residency.State) bool { return s == residency.Resident || s == residency.Entering }

// regroup divides the shares into groups, which go on as they stood.
func regroup(now uint64, before []*group, tenants map[string]*share) (groups []*group) {
	of := map[string]*group{}
	for _, g := range before {
		for _, s := range g.shares {
			of[s.member.ID] = g
		}
	}
	used := map[*residency.Law]bool{}
	for _, shares := range connected(tenants) {
		next := &group{law: &residency.Law{}, shares: shares}
		for _, s := range shares {
			if old := of[s.member.ID]; old != nil && !used[old.law] {
				next.law = old.law
				used[old.law] = true
				break
			}
		}
		next.merge(now, of)
		groups = append(groups, next)
	}
	return groups
}

// merge has the group's law go on with all of its shares, of which some were in other groups.
func (g *group) merge(now uint64, of map[string]*group) {
	var laws []*residency.Law
	moved := map[*residency.Law][]string{}
	for _, s := range g.shares {
		if old := of[s.member.ID]; old != nil && old.law != g.law {
			if moved[old.law] == nil {
				laws = append(laws, old.law)
			}
			moved[old.law] = append(moved[old.law], s.member.ID)
		}
	}
	for _, law := range laws {
		g.law.Take(law, moved[law])
	}
	for _, s := range g.shares {
		if of[s.member.ID] == nil {
			s.resume(now, g.law)
		}
	}
}

// connected are the shares in sets without a GPU in common, in the order of their names.
func connected(tenants map[string]*share) (sets [][]*share) {
	at := map[int]int{} // the set that has a GPU
	for _, id := range slices.SortedFunc(maps.Keys(tenants), cmp.Compare) {
		s := tenants[id]
		mine := []*share{s}
		for _, n := range s.numbers {
			if k, taken := at[n]; taken && sets[k] != nil {
				mine = append(mine, sets[k]...)
				sets[k] = nil
			}
		}
		for _, one := range mine {
			for _, n := range one.numbers {
				at[n] = len(sets)
			}
		}
		sets = append(sets, mine)
	}
	sets = slices.DeleteFunc(sets, func(set []*share) bool { return set == nil })
	for _, set := range sets {
		slices.SortFunc(set, func(a, b *share) int { return cmp.Compare(a.member.ID, b.member.ID) })
	}
	return sets
}
