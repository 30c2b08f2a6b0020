package alloc

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
)

// kind describes all nodes that are alike while they have no tenants.
type kind struct {
	id string
	// nodes is how many there are, and modelled how many there were when the model was made.
	nodes, modelled int
	gpus            []GPU          // of one of them, without names and tenants
	mixes           []*layouts.Mix // what is asked of each of gpus, nil for one without profiles
	// cpu and memory are the most that one of the nodes has, and allCPU what all have in thousandths of a processor.
	cpu, memory int32
	allCPU      int64
	// several tells that the GPUs are not all alike, so that a state does not tell which of them is where.
	several bool
}

// kinds are the kinds of an inventory's nodes. A place without nodes may become another kind's.
type kinds struct {
	all  []kind
	byID map[string]int32
	// drifted tells that the nodes are others than the model knows, see modelChanges.
	drifted bool
	// capabilities are those of the GPUs that there are, in order, see rank.
	capabilities []capability
}

func (ks *kinds) init() { ks.byID = map[string]int32{} }

// id is equal for nodes of one kind. Processors and memory of machines of one make differ by little, so they are rounded:
// what fits is decided by the exact amounts.
func (ks *kinds) id(n *Node) string {
	var id strings.Builder
	fmt.Fprintf(&id, "%d %d", roughly(uint64(n.CPU)), roughly(n.Memory>>20))
	for i := range n.GPUs {
		g := &n.GPUs[i]
		fmt.Fprintf(&id, " %q %d %d %d %d %q %v %v %d %d %d", g.Model, g.Capacity, g.SwapMemory, g.MostSwapMemory, g.ContextBytes, g.Fault, g.Profiles, g.Capability, g.Class, g.DefaultCores, g.Slots)
	}
	return id.String()
}

// roughly rounds down to five binary digits, which is at most 6 % less.
func roughly(n uint64) uint64 {
	if drop := bits.Len64(n) - 5; drop > 0 {
		return n >> drop << drop
	}
	return n
}

// kindOf finds the kind of a node, or makes it. Its error is that of MIG profiles which contradict themselves.
func (ks *kinds) kindOf(n *Node, mixes *Mixes) (int32, error) {
	id := ks.id(n)
	if k, known := ks.byID[id]; known {
		return k, nil
	}
	k := kind{id: id}
	for _, g := range n.GPUs {
		g.UUID, g.Granted, g.SwapGranted, g.Cores, g.Tenants, g.Slices, g.Instances, g.Fence, g.aside = "", 0, 0, 0, 0, 0, 0, "", false
		g.Turn, g.Swapped, g.turns = 0, 0, nil
		k.gpus = append(k.gpus, g)
		k.several = k.several || !alike(&g, &k.gpus[0])
	}
	if err := k.learn(mixes); err != nil {
		return 0, err
	}
	at := slices.IndexFunc(ks.all, func(k kind) bool { return k.nodes == 0 })
	if at < 0 {
		at = len(ks.all)
		ks.all = append(ks.all, kind{})
	} else {
		delete(ks.byID, ks.all[at].id)
	}
	ks.all[at] = k
	ks.byID[id] = int32(at)
	ks.drifted = true
	return int32(at), nil
}

// alike reports whether two GPUs of a kind serve every request in the same way.
func alike(a, b *GPU) bool {
	return a.Model == b.Model && a.Capacity == b.Capacity && a.SwapMemory == b.SwapMemory && a.MostSwapMemory == b.MostSwapMemory && a.ContextBytes == b.ContextBytes && a.Fault == b.Fault &&
		a.Capability == b.Capability && a.Class == b.Class && a.DefaultCores == b.DefaultCores && a.Slots == b.Slots &&
		len(a.Profiles) == len(b.Profiles)
}

// driftPart is how much the number of a kind's GPUs may change before the model is made anew: a sixteenth of them.
const driftPart = 16

// count notes that a kind has more nodes.
func (ks *kinds) count(k int32, by int) {
	kind := &ks.all[k]
	kind.nodes += by
	off := kind.nodes - kind.modelled
	if len(kind.gpus) > 0 && max(off, -off)*driftPart > kind.modelled {
		ks.drifted = true
	}
}

// learn finds the mixes of the kind's GPUs.
func (k *kind) learn(mixes *Mixes) error {
	k.mixes = make([]*layouts.Mix, len(k.gpus))
	for i := range k.gpus {
		if len(k.gpus[i].Profiles) == 0 {
			continue
		}
		mix, err := mixes.of(k.gpus[i].Profiles)
		if err != nil {
			return err
		}
		k.mixes[i] = mix
	}
	return nil
}

// capability is what preferences compare.
type capability struct {
	compute int
	speed   int64
	memory  uint64
}

func capabilityOf(g *GPU) capability {
	return capability{g.Capability.Compute, int64(g.Capability.SMs) * int64(g.Capability.Clock), g.Capacity}
}

func (a capability) compare(b capability) int {
	return cmp.Or(cmp.Compare(a.compute, b.compute), cmp.Compare(a.speed, b.speed), cmp.Compare(a.memory, b.memory))
}

// modelChanges makes model and shapes anew if the kinds of nodes have changed, or their numbers much.
func (inv *Inventory) modelChanges() {
	if inv.kinds.drifted {
		inv.remodel()
	}
}

// remodel makes everything anew that is computed of the kinds.
func (inv *Inventory) remodel() {
	inv.kinds.drifted = false
	inv.kinds.capabilities = inv.kinds.capabilities[:0]
	for k := range inv.kinds.all {
		kind := &inv.kinds.all[k]
		kind.modelled, kind.cpu, kind.memory, kind.allCPU = kind.nodes, 0, 0, 0
		for i := range kind.gpus {
			if kind.nodes > 0 {
				inv.kinds.capabilities = append(inv.kinds.capabilities, capabilityOf(&kind.gpus[i]))
			}
		}
	}
	for i := range inv.nodes {
		if n := &inv.nodes[i]; !inv.entries[i].absent {
			kind := &inv.kinds.all[inv.entries[i].state.kind]
			kind.cpu, kind.memory = max(kind.cpu, clamp(n.CPU)), max(kind.memory, clamp(int64(n.Memory>>20)))
			kind.allCPU += n.CPU
		}
	}
	slices.SortFunc(inv.kinds.capabilities, capability.compare)
	inv.kinds.capabilities = slices.CompactFunc(inv.kinds.capabilities, func(a, b capability) bool { return a.compare(b) == 0 })
	inv.shapes.clear()
	inv.work.remodel()
}
