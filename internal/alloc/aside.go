package alloc

import "math/bits"

// SetAside keeps the GPUs of an assignment from all requests until PutBack, or until their node changes. Whoever plans for
// several tenants that must not share GPUs sets aside what each of them got. It changes no request, so that indexes stay.
func (inv *Inventory) SetAside(a Assignment) { inv.aside(&a, true) }

// PutBack lets requests have GPUs again that were set aside.
func (inv *Inventory) PutBack(a Assignment) { inv.aside(&a, false) }

func (inv *Inventory) aside(a *Assignment, aside bool) {
	at, ok := inv.at(a)
	if !ok {
		return
	}
	n, changed := &inv.nodes[at], false
	for i := range a.Shares {
		if gpu := n.find(&a.Shares[i]); gpu >= 0 && n.GPUs[gpu].aside != aside {
			n.GPUs[gpu].aside, changed = aside, true
		}
	}
	if changed {
		inv.entries[at].refresh(n)
		inv.touch(at)
	}
}

// Room says how many equal pods nodes have room for, as far as sums tell: there may be room for fewer on a node, and never
// for more. No two of them share a GPU if apart is set. What it returns looks at no more than most, and holds until the
// nodes are others. The error is [ErrRequest].
func (inv *Inventory) Room(p *Pod, apart bool) (room func(node, most int) int, err error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	pod := inv.podShape(p)
	return func(node, most int) int {
		r := &inv.entries[node]
		if r.absent {
			return 0
		}
		if pod.cpu > 0 {
			most = min(most, int(max(0, r.cpu)/pod.cpu))
		}
		if pod.memory > 0 {
			most = int(min(r.memory/pod.memory, uint64(most)))
		}
		if !apart {
			return most
		}
		for _, claim := range pod.shapes {
			if most > 0 {
				most = min(most, inv.roomApart(claim, node))
			}
		}
		return most
	}, nil
}

// roomApart is for how many equal claims a node has GPUs, each claim on GPUs of its own.
func (inv *Inventory) roomApart(claim []*shape, node int) int {
	return bits.OnesCount32(inv.serving(claim, node)) / leastGPUs(claim)
}

// leastGPUs is how many GPUs a claim needs at least.
func leastGPUs(claim []*shape) int {
	least := MaxGPUs
	for _, c := range claim {
		if c.request.Same {
			return 1
		}
		least = min(least, c.request.Count)
	}
	return least
}

// serving has a bit for each GPU of a node on which a share of a claim fits, by any of its alternatives.
func (inv *Inventory) serving(claim []*shape, node int) (fitting uint32) {
	r, n := &inv.entries[node], &inv.nodes[node]
	for _, c := range claim {
		needs, plain := c.needs[r.state.kind], c.request.plain()
		for i := range n.GPUs {
			if plain && c.least[r.state.kind] > r.state.gpus[i].memory+1 {
				break // the others have less
			}
			if at := int(r.gpu[i]); fitting&(1<<at) == 0 && c.fits(n, at, &needs[at], 1) == CauseNone {
				fitting |= 1 << at
			}
		}
	}
	return fitting
}
