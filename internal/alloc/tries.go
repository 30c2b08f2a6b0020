package alloc

import "slices"

const (
	// mostTries bounds what one question about all nodes costs, in sets of GPUs that are looked at, beside what each node has of its
	// own: nobody else is answered meanwhile. Pods of a few shares need hundreds of them on a thousand nodes, seldom thousands.
	mostTries = 1 << 15
	// ownTries is how many tries each node has of its own, beside the first for each claim, so that the nodes before it cannot keep a
	// pod from a node that has room.
	ownTries = 16
	// triesAgain is what a node that has changed gives back to the question.
	triesAgain = 64
)

// own reports whether a try is of those that a node has in any case.
func (z *puzzle) own() bool { return z.spare == nil || z.tries <= len(z.pod.shapes)+ownTries }

// spent reports whether nothing is left for the next try.
func (z *puzzle) spent() bool { return !z.own() && *z.spare <= 0 }

// spend takes what a try has looked at from what is spare.
func (z *puzzle) spend(sets int) {
	if !z.own() {
		*z.spare -= sets
	}
}

// amounts are what claims ask of a GPU of a node at least, by claim: 0 where that is not known.
type amounts [MostClaims]uint64

// tooMany reports whether the GPUs of a node that serve a pod certainly take fewer shares than it has. For each size there must be
// room for as many shares of that size as the pod has that are as large or larger.
func (inv *Inventory) tooMany(p *podShape, node int, serving uint32) bool {
	n := &inv.nodes[node]
	var memory, cores amounts
	for i, claim := range p.shapes {
		memory[i], cores[i] = inv.leastOf(claim, node, serving)
	}
	return n.lacksRoom(p, serving, &memory, (*GPU).FreeMemory) || n.lacksRoom(p, serving, &cores, func(g *GPU) uint64 { return uint64(g.FreeCores()) })
}

// leastOf is what a share of a claim takes at least of any GPU that serves the pod.
func (inv *Inventory) leastOf(claim []*shape, node int, serving uint32) (memory, cores uint64) {
	n, first := &inv.nodes[node], true
	for _, c := range claim {
		needs := c.needs[inv.entries[node].state.kind]
		for i := range n.GPUs {
			if serving&(1<<i) == 0 || needs[i].cause != CauseNone {
				continue
			}
			m, k := c.request.takes(&n.GPUs[i], &needs[i])
			if first {
				memory, cores, first = m, k, false
			}
			memory, cores = min(memory, m), min(cores, k)
		}
	}
	return memory, cores
}

// takes is what a share takes of a GPU that is not given to two, 0 for what may be.
func (r *Request) takes(g *GPU, n *need) (memory, cores uint64) {
	if !r.Overcommit && !r.Swap && r.Profile == "" {
		memory = n.limit
	}
	if !r.OvercommitCores && r.Profile == "" {
		cores = uint64(r.coresOf(g))
	}
	return memory, cores
}

// lacksRoom is tooMany by one amount of each share, of which GPUs have so much free.
func (n *Node) lacksRoom(p *podShape, serving uint32, asks *amounts, free func(*GPU) uint64) bool {
	for i := range p.shapes {
		size := asks[i]
		if size == 0 || slices.Contains(asks[:i], size) {
			continue
		}
		wanted, room := 0, 0
		for k, claim := range p.shapes {
			if asks[k] >= size {
				wanted += leastGPUs(claim)
			}
		}
		for k := range n.GPUs {
			g := &n.GPUs[k]
			if serving&(1<<k) == 0 {
				continue
			}
			takes := int(min(free(g)/size, MaxGPUs*MostClaims))
			if g.Slots > 0 {
				takes = min(takes, max(0, g.Slots-g.Tenants))
			}
			room += takes
		}
		if wanted > room {
			return true
		}
	}
	return false
}
