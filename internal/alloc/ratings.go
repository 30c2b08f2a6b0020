package alloc

import "slices"

// Ratings say of every node whether a pod fits there, and how much the policy wants it there, so that somebody else can
// choose among them. They follow the inventory: each question costs what has changed since the one before, and no node is
// rated that is not asked about.
type Ratings struct {
	inv *Inventory
	pod Pod
	// shape is that of a pod with at most one request, and index its index if there is one. Otherwise several is the
	// pod's, and keys has those of nodes that were asked about.
	shape   *shape
	index   *index
	several *podShape
	keys    []uint64
	read    int
	version uint32
	made    bool
	// spare is as in puzzle.
	spare int
}

// unrated is the key of a node that was not asked about, and untried that of one on which no place was found and not every way was
// tried. No node has them, as no inventory has as many.
const (
	unrated = noKey - 1 - iota
	untried
)

// Ratings begins to rate nodes for a pod, of which each claim has one alternative. The error is [ErrRequest].
func (inv *Inventory) Ratings(p *Pod) (*Ratings, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return &Ratings{inv: inv, pod: *p, read: -1}, nil
}

// Update has the ratings tell of the inventory as it is now. They hold as long as it does not change.
func (r *Ratings) Update() {
	inv := r.inv
	r.shape, r.index, r.several = nil, nil, nil
	one, ok := r.pod.one()
	if ok {
		r.shape = inv.shape(one)
	} else {
		r.several = inv.podShape(&r.pod)
	}
	if ok && inv.indexed(&one) {
		r.keys, r.read = nil, -1
		if inv.present > 0 {
			r.index = inv.find(r.shape)
		}
		return
	}
	r.repair()
}

// repair forgets the keys of nodes that have changed.
func (r *Ratings) repair() {
	inv := r.inv
	end := inv.logged + len(inv.log)
	stale := r.read < inv.logged || inv.policy.random || r.version != inv.work.version || r.made != inv.turnover.restless
	for len(r.keys) < len(inv.nodes) {
		r.keys = append(r.keys, unrated)
	}
	if stale {
		for node := range r.keys {
			r.keys[node] = unrated
		}
		r.spare = mostTries
	} else {
		changed := inv.log[r.read-inv.logged:]
		for _, node := range changed {
			r.keys[node] = unrated
		}
		r.spare = min(mostTries, r.spare+triesAgain*len(changed))
	}
	r.read, r.version, r.made = end, inv.work.version, inv.turnover.restless
}

// Key orders nodes on which the pod fits: the policy wants the one with the least most, and no two nodes have the same.
func (r *Ratings) Key(node int) (key uint64, fits bool) {
	switch {
	case r.index != nil:
		key = r.index.tree[r.index.base+node]
	case r.keys == nil:
		return noKey, false // there are no nodes
	default:
		if r.keys[node] == unrated {
			r.keys[node] = r.rate(node)
		}
		if key = r.keys[node]; key == untried {
			key = noKey
		}
	}
	return key, key != noKey
}

// rate computes the key of a node.
func (r *Ratings) rate(node int) uint64 {
	inv := r.inv
	switch {
	case inv.entries[node].absent:
		return noKey
	case r.several != nil:
		return inv.ratePod(r.several, node, &r.spare)
	}
	a, cause := inv.arrange(r.shape, node)
	if cause != CauseNone {
		return noKey
	}
	return inv.keyOf(r.shape, node, &a)
}

// Assignment is what the policy chooses for the pod on a node, if it fits there.
func (r *Ratings) Assignment(node int) (a Assignment, fits bool) {
	key, fits := r.Key(node)
	switch {
	case !fits:
		return a, false
	case r.several != nil:
		return r.inv.placePod(r.several, node), true
	}
	return r.inv.place(r.shape, key), true
}

// Cause says why the pod does not fit on a node. What its GPUs lack is said before what the host lacks, unless the host has
// never enough.
func (r *Ratings) Cause(node int) Cause {
	if _, fits := r.Key(node); fits {
		return CauseNone
	}
	switch {
	case r.several != nil && r.keys[node] == untried:
		return CauseTries
	case r.several != nil:
		return r.inv.podCause(r.several, node)
	}
	if cause := r.inv.cause(r.shape, node); cause != CauseNone {
		return cause
	}
	return CauseTogether
}

// podCause says why a pod of several claims does not fit on a node: by the claim that lacks the most, else by the host,
// else because not all of them fit together.
func (inv *Inventory) podCause(p *podShape, node int) Cause {
	if inv.entries[node].absent {
		return CauseCount
	}
	least := causes
	for _, claim := range p.shapes {
		nearest := slices.MaxFunc(claim, func(a, b *shape) int { return nearness(inv.cause(a, node)) - nearness(inv.cause(b, node)) })
		if cause := inv.cause(nearest, node); cause != CauseNone {
			least = min(least, cause)
		}
	}
	host := Request{CPU: p.cpu, HostMemory: p.memory}
	switch {
	case least != causes:
		return least
	case host.hostCause(&inv.entries[node], &inv.nodes[node]) != CauseNone:
		return host.hostCause(&inv.entries[node], &inv.nodes[node])
	}
	return CauseTogether
}

// nearness is greater for a nearer miss, and greatest for none.
func nearness(c Cause) int {
	if c == CauseNone {
		return int(causes)
	}
	return int(c)
}
