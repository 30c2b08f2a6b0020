package reclaim

import (
	"cmp"
	"slices"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// mostTries bounds how many places are tried for one set of those who move, and mostPlaces on how many nodes one pod is tried.
const (
	mostTries  = 96
	mostPlaces = 8
)

// rearrange places the demander and all who move on trial, in several orders.
func (t *trial) rearrange() bool {
	moved := t.moved()
	size := 0
	for i := range t.demander.Members {
		size = max(size, gpus(&t.demander.Members[i].Pod))
	}
	larger := 0
	for larger < len(moved) && t.size(moved[larger]) > size {
		larger++
	}
	orders := []int{0, len(moved), larger}
	for i, turn := range orders {
		if !slices.Contains(orders[:i], turn) && t.arrange(moved, turn) {
			return true
		}
	}
	return t.solve(moved)
}

// moved are the candidates of which members move, the largest first.
func (t *trial) moved() (all []int) {
	for i := range t.candidates {
		if t.moving && slices.Contains(t.gone[i], true) {
			all = append(all, i)
		}
	}
	slices.SortStableFunc(all, func(a, b int) int {
		return cmp.Or(cmp.Compare(t.size(b), t.size(a)), cmp.Compare(t.rank[a], t.rank[b]))
	})
	return all
}

// size is how many GPUs a member of a candidate asks for.
func (t *trial) size(candidate int) int { return gpus(&t.candidates[candidate].Members[0].Again.Pod) }

// arrange places the demander in its turn among those who move. It leaves no trace in the inventory.
func (t *trial) arrange(moved []int, turn int) bool {
	var reserved []alloc.Assignment
	defer func() {
		for _, a := range slices.Backward(reserved) {
			t.inv.Unreserve(a)
		}
	}()
	reserve := func(a alloc.Assignment) bool {
		if t.inv.Reserve(a) != nil {
			return false
		}
		reserved = append(reserved, a)
		return true
	}
	before, homes := t.found, map[int]home{}
	for at := 0; at <= len(moved); at++ {
		if at == turn {
			if !t.alone() {
				return false
			}
			for i := range t.found.Placements {
				if !reserve(t.found.Placements[i].Assignment) {
					t.found = before
					return false
				}
			}
		}
		if at == len(moved) {
			break
		}
		h, ok := t.home(moved[at])
		if !ok || slices.ContainsFunc(h.places, func(a alloc.Assignment) bool { return !reserve(a) }) {
			t.found = before
			return false
		}
		homes[moved[at]] = h
	}
	t.homes = homes
	return true
}

// party is pods that are placed together: the demander, or a candidate of which members move.
type party struct {
	candidate int // -1 for the demander
	apart     bool
	// has are the places of those that stay and of those that were placed on trial.
	has []alloc.Assignment
}

// piece is a pod that needs a place.
type piece struct {
	party  *party
	member *gang.Member
	index  int // of the member in its candidate
	place  alloc.Assignment
}

// solve places the demander and all who move node by node, in all ways as far as the tries reach. It knows no topology.
func (t *trial) solve(moved []int) bool {
	pieces, ok := t.pieces(moved)
	if !ok {
		return false
	}
	tries := mostTries
	if !t.pack(pieces, &tries) {
		return false
	}
	t.found, t.homes = gang.Plan{}, map[int]home{}
	for _, i := range moved {
		t.homes[i] = home{members: t.away(i), places: make([]alloc.Assignment, len(t.away(i)))}
	}
	for i := range pieces {
		p := &pieces[i]
		if p.party.candidate < 0 {
			t.found.Placements = append(t.found.Placements, gang.Placement{Member: *p.member, Assignment: p.place})
			continue
		}
		h := t.homes[p.party.candidate]
		h.places[slices.Index(h.members, p.index)] = p.place
	}
	slices.SortStableFunc(t.found.Placements, func(a, b gang.Placement) int { return cmp.Compare(a.Member.Key, b.Member.Key) })
	return true
}

// pieces are all that need places, the largest first; false where a topology binds some of them.
func (t *trial) pieces(moved []int) (all []piece, ok bool) {
	d := t.demander
	of := &party{candidate: -1, apart: !d.Gang.ShareGPUs}
	if len(d.Gang.Topology) > 0 {
		return nil, false
	}
	for i := range d.Members {
		m := &d.Members[i]
		if m.Placed != nil {
			of.has = append(of.has, *m.Placed)
		} else {
			all = append(all, piece{party: of, member: m})
		}
	}
	if d.Gang.Minimum-len(of.has) < len(all) {
		return nil, false // it does not say which of them must have places
	}
	for _, i := range moved {
		c := &t.candidates[i]
		of := &party{candidate: i, apart: len(c.Members) > 1 && !c.Gang.ShareGPUs}
		if len(c.Members) > 1 && len(c.Gang.Topology) > 0 {
			return nil, false
		}
		for j := range c.Members {
			if t.gone[i][j] {
				all = append(all, piece{party: of, member: c.Members[j].Again, index: j})
			} else {
				of.has = append(of.has, *c.Members[j].held())
			}
		}
	}
	slices.SortStableFunc(all, func(a, b piece) int { return cmp.Compare(bulk(b.member), bulk(a.member)) })
	return all, true
}

// bulk orders members by how hard they are to place: the more GPUs, and the more of each.
func bulk(m *gang.Member) (bulk uint64) {
	for _, claim := range m.Pod.Claims {
		r := &claim[0]
		each := max(r.Memory.Of(1<<36)>>26, uint64(r.Cores)*10)
		if r.Whole {
			each = 1 << 10
		}
		bulk += uint64(r.Count) * (1<<10 + each)
	}
	return bulk
}

// pack places pieces, and leaves no trace in the inventory.
func (t *trial) pack(pieces []piece, tries *int) bool {
	if len(pieces) == 0 {
		return true
	}
	p := &pieces[0]
	for _, a := range t.places(p) {
		if *tries--; *tries < 0 {
			return false
		}
		if t.inv.Reserve(a) != nil {
			continue
		}
		p.place = a
		p.party.has = append(p.party.has, a)
		done := t.pack(pieces[1:], tries)
		p.party.has = p.party.has[:len(p.party.has)-1]
		t.inv.Unreserve(a)
		if done {
			return true
		}
	}
	return false
}

// places are those that a piece could have, the tightest of each node, the tightest first.
func (t *trial) places(p *piece) (all []alloc.Assignment) {
	if p.party.apart {
		for _, a := range p.party.has {
			t.inv.SetAside(a)
		}
		defer func() {
			for _, a := range p.party.has {
				t.inv.PutBack(a)
			}
		}()
	}
	t.steps += 2 + t.inv.Len()/4
	choices, err := t.inv.TightChoices(&p.member.Pod, p.member.Among)
	if err != nil {
		return nil
	}
	for a, ok := choices.Next(); ok && len(all) < mostPlaces; a, ok = choices.Next() {
		if p.member.Lets == nil || p.member.Lets(a.Node) {
			all = append(all, a)
		}
	}
	for _, a := range all {
		all = t.others(all, p, &a)
	}
	return all
}

// others adds places on the same node without one of the GPUs.
func (t *trial) others(all []alloc.Assignment, p *piece, first *alloc.Assignment) []alloc.Assignment {
	only := &alloc.NodeSet{}
	only.Add(first.Node)
	for i := range first.Shares {
		without := alloc.Assignment{Node: first.Node, Name: first.Name, Shares: first.Shares[i : i+1]}
		t.inv.SetAside(without)
		t.steps += 2
		if a, ok := t.tightest(p.member, only); ok {
			all = append(all, a)
		}
		t.inv.PutBack(without)
	}
	return all
}
