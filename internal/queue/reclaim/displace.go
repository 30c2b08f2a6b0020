package reclaim

import (
	"maps"
	"slices"
)

// displace gives a member of the demander the place for which the fewest pods move that have places elsewhere.
func (g *growth) displace(k *kind) bool {
	for _, o := range g.displacements(k) {
		if g.steps > g.most {
			return false
		}
		first := len(g.items)
		for _, it := range o.items {
			g.take(it)
		}
		if a, ok := g.fitsOn(k, o.node); ok && g.reserve(a) {
			if g.settle(o.items) {
				for _, it := range o.items {
					g.touch(it)
				}
				return true
			}
			g.reserved = g.reserved[:len(g.reserved)-1]
			g.putBack(a)
			g.inv.Unreserve(a)
		}
		g.undo(first)
	}
	return false
}

// displacement is a node and what must move there.
type displacement struct {
	*bundle
	node int
}

// displacements are the nodes on which a member could be if others moved, those first where the fewest do.
func (g *growth) displacements(k *kind) (all []displacement) {
	for node := range g.inv.Len() {
		if len(g.nodes[node]) == 0 || g.steps > g.most || k.member.Lets != nil && !k.member.Lets(node) {
			continue
		}
		b, known := k.bundles[node]
		if !known || !g.valid(b) {
			b = g.bundle(k, node)
			k.bundles[node] = b
		}
		if b != nil {
			all = append(all, displacement{b, node})
		}
	}
	slices.SortStableFunc(all, func(a, b displacement) int { return a.compare(b.bundle) })
	return all
}

// settle gives those who move places, and reports false where one has none; then nothing has changed.
func (g *growth) settle(items []item) bool {
	before := maps.Clone(g.homes)
	var done []int
	for _, it := range items {
		i := it.candidate
		if slices.Contains(done, i) {
			continue
		}
		g.leave(i)
		done = append(done, i)
		h, ok := g.home(i)
		if ok {
			ok = g.enter(i, h)
		}
		if ok {
			continue
		}
		for _, i := range done {
			g.leave(i)
			if h, had := before[i]; had {
				g.enter(i, h)
			}
		}
		return false
	}
	return true
}

// enter reserves where members of a candidate go.
func (g *growth) enter(candidate int, h home) bool {
	for at, a := range h.places {
		if g.inv.Reserve(a) != nil {
			for _, a := range h.places[:at] {
				g.inv.Unreserve(a)
			}
			return false
		}
		for _, k := range g.kinds {
			delete(k.bundles, a.Node)
		}
	}
	g.homes[candidate] = h
	return true
}

// leave takes back where members of a candidate go.
func (g *growth) leave(candidate int) {
	for _, a := range g.homes[candidate].places {
		g.inv.Unreserve(a)
	}
	delete(g.homes, candidate)
}
