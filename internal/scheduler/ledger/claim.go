package ledger

import (
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	dra "github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// holding is what a claim has.
type holding struct {
	takings []taking
	// held is what the inventory counts for it, one assignment for each node. A claim is on one node unless whoever wrote
	// its allocation was mistaken.
	held []alloc.Assignment
}

// taking is what a claim has of one device.
type taking struct {
	pool, device string
	memory, swap uint64
	cores, slots int
	counts       where
}

// where says where the amounts of a taking count: a share that is suspended is in memory of its host, and one that leaves or comes
// back counts in both.
type where uint8

const (
	onGPU where = iota
	onBoth
	inHost
)

// SetClaim takes in a claim, by its namespace and name as "namespace/name"; nil is for one that is gone. What an allocation
// has is counted, whether its devices are there or not, and replaces what was reserved for the claim.
func (l *Ledger) SetClaim(key string, claim *resourcev1.ResourceClaim) {
	l.setTakings(key, l.noted(key, claim, takingsOf(claim)))
}

func (l *Ledger) setTakings(key string, after []taking) {
	g := l.claims[key]
	if g != nil && slices.Equal(g.takings, after) || g == nil && len(after) == 0 {
		return
	}
	if g != nil && slices.EqualFunc(g.takings, after, sameDevice) {
		g.takings = after
		l.locate(g)
		return
	}
	l.Unreserve(key)
	if g != nil {
		l.drop(key, g)
	}
	if len(after) == 0 {
		return
	}
	g = &holding{takings: after}
	l.claims[key] = g
	for _, t := range after {
		if l.holders[t.pool] == nil {
			l.holders[t.pool] = map[string]bool{}
		}
		l.holders[t.pool][key] = true
		if t.alone() {
			l.count(deviceID{t.pool, t.device}, 1)
		}
	}
	l.locate(g)
}

// drop ends what a claim has.
func (l *Ledger) drop(key string, g *holding) {
	for _, a := range g.held {
		l.inv.Release(a)
		l.noteFences(a.Name)
	}
	for _, t := range g.takings {
		if t.alone() {
			l.count(deviceID{t.pool, t.device}, -1)
		}
		if delete(l.holders[t.pool], key); len(l.holders[t.pool]) == 0 {
			delete(l.holders, t.pool)
		}
	}
	delete(l.claims, key)
}

// count notes that more claims have a device, if it is one that one claim alone can have.
func (l *Ledger) count(id deviceID, by int) {
	if l.takers[id] += by; l.takers[id] == 0 {
		delete(l.takers, id)
	}
	if p := l.pools[id.pool]; p != nil && len(l.nodes[p.node].sick) > 0 {
		l.restate(l.nodes[p.node])
	}
}

// alone reports whether nothing is consumed of the device: one claim has all of it.
func (t *taking) alone() bool { return t.memory == 0 && t.slots == 0 }

// locate counts what a claim has where its devices are by what is published.
func (l *Ledger) locate(g *holding) {
	after := l.assignments(g.takings)
	if slices.EqualFunc(g.held, after, sameAssignment) {
		return
	}
	for _, a := range g.held {
		l.inv.Unreserve(a)
		l.noteFences(a.Name)
	}
	g.held = after
	for _, a := range after {
		l.inv.Adopt(a)
		l.noteFences(a.Name)
	}
}

func sameAssignment(a, b alloc.Assignment) bool {
	return a.Name == b.Name && slices.Equal(a.Shares, b.Shares)
}

// takingsOf are what a claim has of this driver's devices. What it may look at as an administrator it does not have.
func takingsOf(claim *resourcev1.ResourceClaim) []taking {
	if claim == nil || claim.Status.Allocation == nil {
		return nil
	}
	var all []taking
	counts := countsOf(claim)
	for i := range claim.Status.Allocation.Devices.Results {
		r := &claim.Status.Allocation.Devices.Results[i]
		if r.Driver != v1alpha1.Driver || r.AdminAccess != nil && *r.AdminAccess {
			continue
		}
		t := taking{pool: r.Pool, device: r.Device}
		if _, form, _ := dra.Parse(r.Device); form == dra.Shared { // nothing else leaves its GPU
			t.counts = counts
		}
		memory, cores, slots := r.ConsumedCapacity[v1alpha1.CapacityMemory], r.ConsumedCapacity[v1alpha1.CapacityCores], r.ConsumedCapacity[v1alpha1.CapacitySlots]
		swap := r.ConsumedCapacity[v1alpha1.CapacitySwapMemory]
		t.memory, t.swap = uint64(bounded(memory.Value())), uint64(bounded(swap.Value()))
		t.cores = int(min(bounded(cores.Value()), mostCores))
		t.slots = int(min(bounded(slots.Value()), mostSlots+1))
		all = append(all, t)
	}
	return all
}

// mostCores bounds what one claim can be counted with. No GPU has more than 100.
const mostCores = 1 << 16

// assignments are what the inventory counts for takings, in order of the nodes.
func (l *Ledger) assignments(takings []taking) (all []alloc.Assignment) {
	at := map[string]*alloc.Assignment{}
	for i := range takings {
		name, shares := l.shares(&takings[i])
		if len(shares) == 0 {
			continue
		}
		if at[name] == nil {
			at[name] = &alloc.Assignment{Node: -1, Name: name}
		}
		at[name].Shares = append(at[name].Shares, shares...)
	}
	for _, name := range slices.Sorted(maps.Keys(at)) {
		all = append(all, *at[name])
	}
	return all
}

// shares are what a taking is on its node: one share, and one without amounts for every further slot.
func (l *Ledger) shares(t *taking) (nodeName string, shares []alloc.Share) {
	p := l.pools[t.pool]
	var d *device
	if p != nil {
		d = p.byName[t.device]
	}
	var share alloc.Share
	function, card := dra.IsNIC(t.device)
	switch {
	case d != nil && d.isCard():
		return p.node, slices.Repeat([]alloc.Share{{NIC: t.device}}, max(1, t.slots))
	case d == nil && card && !function:
		return l.nodeOf(t.pool), slices.Repeat([]alloc.Share{{NIC: t.device}}, max(1, t.slots))
	case d != nil && d.gpu != nil:
		nodeName, share = p.node, d.share()
	default:
		uuid, _, ok := dra.Parse(t.device)
		if !ok {
			return "", nil
		}
		// A pool bears the name of its node.
		nodeName, share = t.pool, alloc.Share{UUID: uuid}
		if p != nil {
			nodeName = p.node
		}
		share.Profile, share.Start, _ = dra.ParseInstance(t.device)
	}
	switch {
	case share.Profile != "":
		return nodeName, []alloc.Share{share}
	case d != nil && !d.shared:
		share.Limit = d.gpu.idle.Capacity
		return nodeName, []alloc.Share{share}
	}
	return nodeName, t.plain(share)
}

// plain are the shares of a taking of a GPU that several claims can have, of which share names the GPU.
func (t *taking) plain(share alloc.Share) []alloc.Share {
	away := share
	away.SwapMemory, away.Away = t.memory, true
	share.Limit, share.SwapMemory, share.Cores = t.memory, t.swap, t.cores
	if t.counts == inHost {
		away.SwapMemory += t.swap
		return []alloc.Share{away}
	}
	shares := []alloc.Share{share}
	if t.counts == onBoth { // apart, because a host that is too small for it is nothing that is wrong with the GPU
		shares = append(shares, away)
	}
	share.Limit, share.SwapMemory, share.Cores = 0, 0, 0
	for range t.slots - 1 {
		shares = append(shares, share)
	}
	return shares
}
