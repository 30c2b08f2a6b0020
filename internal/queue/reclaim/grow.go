package reclaim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// growth takes the fewest victims for one member of the demander after the other.
type growth struct {
	*trial
	kinds []*kind
	// reserved are places of members on trial.
	reserved []alloc.Assignment
	// only has a set with each node alone.
	only map[int]*alloc.NodeSet
}

// kind is members of the demander that ask the same.
type kind struct {
	member *gang.Member
	count  int
	// full tells that the kind fits on no node but those in changed.
	full    bool
	changed map[int]bool
	bundles map[int]*bundle
}

// bundle is what must end so that a member fits on a node.
type bundle struct {
	items []item
	cost  cost
	rank  int
}

func (b *bundle) compare(c *bundle) int {
	return cmp.Or(b.cost.compare(c.cost), cmp.Compare(b.rank, c.rank))
}

// grow takes victims until the demander fits, and reports whether it does.
func (t *trial) grow() bool {
	if !t.obey() {
		t.restore()
		return false
	}
	g := &growth{trial: t, only: map[int]*alloc.NodeSet{}}
	t.homes = map[int]home{}
	need := g.sortMembers()
	ok := true
	for _, k := range g.kinds {
		for range k.count {
			if need == 0 {
				break
			}
			if ok = g.place(k); !ok {
				break
			}
			need--
		}
	}
	g.unplace()
	if (need == 0 || ok) && t.fits() {
		return true
	}
	t.restore()
	return false
}

// sortMembers puts members that ask the same together, those with most GPUs first, and returns how many must be placed.
func (g *growth) sortMembers() int {
	by := map[string]*kind{}
	placed := 0
	for i := range g.demander.Members {
		m := &g.demander.Members[i]
		if m.Placed != nil {
			placed++
			g.aside(*m.Placed)
			continue
		}
		key := fmt.Sprintf("%+v %p", m.Pod, m.Among)
		if m.Lets != nil {
			key += fmt.Sprint(i)
		}
		if by[key] == nil {
			by[key] = &kind{member: m, changed: map[int]bool{}, bundles: map[int]*bundle{}}
			g.kinds = append(g.kinds, by[key])
		}
		by[key].count++
	}
	slices.SortStableFunc(g.kinds, func(a, b *kind) int { return cmp.Compare(gpus(&b.member.Pod), gpus(&a.member.Pod)) })
	return max(1, g.demander.Gang.Minimum-placed)
}

func gpus(p *alloc.Pod) (n int) {
	for _, claim := range p.Claims {
		n += claim[0].Count
	}
	return n
}

func (g *growth) aside(a alloc.Assignment) {
	if !g.demander.Gang.ShareGPUs {
		g.inv.SetAside(a)
	}
}

func (g *growth) putBack(a alloc.Assignment) {
	if !g.demander.Gang.ShareGPUs {
		g.inv.PutBack(a)
	}
}

// unplace gives back what members have on trial.
func (g *growth) unplace() {
	for i := range g.demander.Members {
		if p := g.demander.Members[i].Placed; p != nil {
			g.putBack(*p)
		}
	}
	for _, a := range slices.Backward(g.reserved) {
		g.putBack(a)
		g.inv.Unreserve(a)
	}
	for i := range g.homes {
		g.leave(i)
	}
}

// place gives a member of a kind a place: one that is free, else the one for which least must end.
func (g *growth) place(k *kind) bool {
	if a, ok := g.vacancy(k); ok {
		return g.reserve(a)
	}
	if g.moving {
		return g.displace(k)
	}
	best, where := g.cheapest(k)
	if best == nil {
		return false
	}
	for _, it := range best.items {
		g.take(it)
		g.touch(it)
	}
	a, ok := g.fitsOn(k, where)
	return ok && g.reserve(a)
}

// vacancy is a place that is free. Once there is none, only nodes on which something changed are looked at.
func (g *growth) vacancy(k *kind) (alloc.Assignment, bool) {
	if !k.full {
		g.steps += g.inv.Len() / 4
		if a, ok := g.tightest(k.member, k.member.Among); ok {
			return a, true
		}
		k.full = true
		clear(k.changed)
	}
	for _, node := range slices.Sorted(maps.Keys(k.changed)) {
		if a, ok := g.fitsOn(k, node); ok {
			return a, true
		}
		delete(k.changed, node)
	}
	return alloc.Assignment{}, false
}

// cheapest is the node on which a member costs least.
func (g *growth) cheapest(k *kind) (best *bundle, where int) {
	for node := range g.inv.Len() {
		if len(g.nodes[node]) == 0 || k.member.Lets != nil && !k.member.Lets(node) {
			continue
		}
		b, known := k.bundles[node]
		if !known || !g.valid(b) {
			if g.steps > g.most {
				continue
			}
			b = g.bundle(k, node)
			k.bundles[node] = b
		}
		if b != nil && (best == nil || b.compare(best) < 0) {
			best, where = b, node
		}
	}
	return best, where
}

// valid reports whether all that a bundle takes may still end.
func (g *growth) valid(b *bundle) bool {
	if b == nil {
		return true
	}
	for _, it := range b.items {
		for _, j := range it.members {
			if g.gone[it.candidate][j] {
				return false
			}
		}
		if !it.whole && g.left[it.candidate] <= g.candidates[it.candidate].Minimum || it.whole && g.left[it.candidate] != len(it.members) || !g.allowed(it) {
			return false
		}
	}
	return true
}

// touch forgets what is known of nodes on which something changed.
func (g *growth) touch(it item) {
	for _, j := range it.members {
		if node, ok := g.inv.Position(g.candidates[it.candidate].Members[j].node()); ok {
			for _, k := range g.kinds {
				k.changed[node] = true
				delete(k.bundles, node)
			}
		}
	}
}

func (g *growth) reserve(a alloc.Assignment) bool {
	if g.inv.Reserve(a) != nil {
		return false
	}
	g.aside(a)
	g.reserved = append(g.reserved, a)
	for _, k := range g.kinds {
		delete(k.bundles, a.Node)
	}
	return true
}

// fitsOn is a place for a member on one node.
func (g *growth) fitsOn(k *kind, node int) (alloc.Assignment, bool) {
	set := g.only[node]
	if set == nil {
		set = &alloc.NodeSet{}
		set.Add(node)
		g.only[node] = set
	}
	g.steps += 2
	if k.member.Among != nil && !k.member.Among.Has(node) {
		return alloc.Assignment{}, false
	}
	return g.tightest(k.member, set)
}

// bundle finds what must end so that a member fits on a node; nil is none. It leaves the trial as it was.
func (g *growth) bundle(k *kind, node int) *bundle {
	first := len(g.items)
	found := false
	for _, m := range g.nodes[node] {
		if g.gone[m.candidate][m.member] {
			continue
		}
		if it := g.next(m); g.allowed(it) {
			g.take(it)
			if _, found = g.fitsOn(k, node); found {
				break
			}
		}
	}
	var b *bundle
	if found {
		for at := len(g.items) - 1; at >= first; at-- {
			if g.bound(at) {
				continue
			}
			it := g.giveBack(at)
			if _, still := g.fitsOn(k, node); !still {
				g.takeAt(at, it)
			}
		}
		b = g.bundleOf(g.items[first:])
	}
	g.undo(first)
	if b != nil && b.cost.all > 1 {
		b = g.single(k, node, b)
	}
	return b
}

func (g *growth) bundleOf(items []item) *bundle {
	b := &bundle{items: slices.Clone(items), cost: g.cost(items)}
	for _, it := range items {
		b.rank = max(b.rank, g.rank[it.candidate])
	}
	return b
}

// single looks for one workload in the place of several.
func (g *growth) single(k *kind, node int, b *bundle) *bundle {
	for _, m := range g.nodes[node] {
		if g.gone[m.candidate][m.member] || g.steps > g.most {
			continue
		}
		it := g.next(m)
		if !g.allowed(it) || g.cost([]item{it}).compare(b.cost) >= 0 {
			continue
		}
		g.take(it)
		if _, ok := g.fitsOn(k, node); ok {
			b = g.bundleOf(g.items[len(g.items)-1:])
		}
		g.giveBack(len(g.items) - 1)
	}
	return b
}
