package alloc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
)

// ErrInventory marks a description of nodes that contradicts itself.
var ErrInventory = errors.New("invalid inventory")

// Inventory is the nodes of a cluster, or one host, and the policy that places on them.
type Inventory struct {
	nodes   []Node
	entries []entry
	kinds   []kind
	policy  Policy
	shapes  map[Request]*shape
	work    *workload

	// log has the nodes that changed, in order, and logged counts those dropped
	// from its front. An index that has not read a dropped one is rebuilt.
	log    []int32
	logged int
	// stamp has the tick at which a reader of the log last saw each node.
	stamp []uint32
	tick  uint32
	// option and after are what is being evaluated. They are here because terms
	// are called through an interface: local variables would be allocated on the
	// heap in every decision.
	option option
	after  state
	// decisions counts searches; the random baseline draws by it.
	decisions uint64
	turnover  turnover
}

// NewInventory makes an inventory of nodes, which the caller must not use
// afterwards. Policies break their last ties by the order of the nodes.
func NewInventory(nodes []Node, policy Policy) (*Inventory, error) {
	if err := policy.validate(len(nodes)); err != nil {
		return nil, err
	}
	inv := &Inventory{
		nodes: nodes, entries: make([]entry, len(nodes)), policy: policy,
		shapes: map[Request]*shape{}, stamp: make([]uint32, len(nodes)),
	}
	names := make(map[string]bool, len(nodes))
	kinds := map[string]int32{}
	for i := range nodes {
		n := &nodes[i]
		if err := n.validate(); err != nil {
			return nil, err
		}
		if names[n.Name] {
			return nil, fmt.Errorf("%w: two nodes are named %q", ErrInventory, n.Name)
		}
		names[n.Name] = true
		id := n.kindID()
		k, known := kinds[id]
		if !known {
			k = int32(len(inv.kinds))
			kinds[id] = k
			inv.kinds = append(inv.kinds, newKind(n))
		}
		inv.kinds[k].nodes++
		inv.entries[i].state.kind = k
		inv.entries[i].refresh(n)
	}
	if err := inv.Learn(&Mixes{}); err != nil {
		return nil, err
	}
	inv.work = newWorkload(inv)
	return inv, nil
}

// Host makes the inventory of one host. Its shares go to the fullest GPU on which
// they fit.
func Host(gpus []GPU) (*Inventory, error) {
	policy, err := PolicyNamed("bestfit")
	if err != nil {
		return nil, err
	}
	return NewInventory([]Node{{GPUs: gpus}}, policy)
}

func (n *Node) validate() error {
	fault := func(format string, args ...any) error {
		return fmt.Errorf("%w: node %q: %s", ErrInventory, n.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case len(n.GPUs) > MaxGPUs:
		return fault("%d GPUs: give at most %d", len(n.GPUs), MaxGPUs)
	case n.CPU < 0 || n.CPUUsed < 0:
		return fault("CPU is negative")
	case len(n.Near) != 0 && len(n.Near) != len(n.GPUs):
		return fault("%d rows of relations for %d GPUs", len(n.Near), len(n.GPUs))
	}
	for _, row := range n.Near {
		if len(row) != len(n.GPUs) {
			return fault("a row has %d relations for %d GPUs", len(row), len(n.GPUs))
		}
	}
	for _, nic := range n.NICs {
		if len(nic.Near) != len(n.GPUs) {
			return fault("adapter %s has %d relations for %d GPUs", nic.Name, len(nic.Near), len(n.GPUs))
		}
	}
	for i := range n.GPUs {
		if text := n.GPUs[i].fault(); text != "" {
			return fault("GPU %d: %s", i, text)
		}
	}
	return nil
}

// fault says what is wrong with a GPU's description.
func (g *GPU) fault() string {
	if g.Cores < 0 || g.Tenants < 0 {
		return "amounts are negative"
	}
	for _, p := range g.Profiles {
		if p.Size < 1 || len(p.Starts) == 0 || slices.Min(p.Starts) < 0 || slices.Max(p.Starts)+p.Size > 32 {
			return fmt.Sprintf("MIG profile %q lies outside memory slices 0 to 31", p.Name)
		}
	}
	return ""
}

// kindID is equal for nodes that are alike while they have no tenants.
func (n *Node) kindID() string {
	var id strings.Builder
	fmt.Fprintf(&id, "%d %d", n.CPU, n.Memory)
	for i := range n.GPUs {
		g := &n.GPUs[i]
		fmt.Fprintf(&id, " %q %d %d %q %v", g.Model, g.Capacity, g.ContextBytes, g.Fault, g.Profiles)
	}
	return id.String()
}

func newKind(n *Node) kind {
	k := kind{hostCPU: n.CPU, hostMemory: n.Memory, cpu: clamp(n.CPU), memory: clamp(int64(n.Memory >> 20))}
	for _, g := range n.GPUs {
		g.UUID, g.Granted, g.Cores, g.Tenants, g.Slices, g.Instances = "", 0, 0, 0, 0, 0
		k.gpus = append(k.gpus, g)
	}
	return k
}

// shape returns the shape of a request. Only those of plain requests are kept:
// others, such as those that name a GPU, may differ for every tenant.
func (inv *Inventory) shape(r Request) *shape {
	if c := inv.shapes[r]; c != nil {
		return c
	}
	c := inv.newShape(r)
	if r.plain() {
		inv.shapes[r] = c
	}
	return c
}

// Reserve takes what an assignment says. If the inventory has changed so that the
// assignment does not fit any more, it fails and takes nothing.
func (inv *Inventory) Reserve(a Assignment) error {
	if a.Node < 0 || a.Node >= len(inv.nodes) {
		return fmt.Errorf("%w: no node %d", ErrAssignment, a.Node)
	}
	n := &inv.nodes[a.Node]
	if a.CPU > n.CPU-n.CPUUsed || a.Memory > n.Memory-min(n.MemoryUsed, n.Memory) {
		return fmt.Errorf("%w: node %s has too little CPU or memory left", ErrAssignment, n.Name)
	}
	for i := range a.Shares {
		if err := n.give(&a.Shares[i], &a, inv.instance(a.Node, &a.Shares[i])); err != nil {
			for j := range a.Shares[:i] {
				n.takeBack(&a.Shares[j])
			}
			return err
		}
	}
	n.CPUUsed += a.CPU
	n.MemoryUsed += a.Memory
	inv.changed(a.Node, a.group, 1)
	return nil
}

// ErrAssignment marks an assignment that does not fit the inventory.
var ErrAssignment = errors.New("assignment does not fit")

// give adds a share to the node, if it fits. placed is its MIG instance, 0 for one that does not fit.
func (n *Node) give(share *Share, a *Assignment, placed layouts.Layout) error {
	if share.GPU < 0 || share.GPU >= len(n.GPUs) || share.NIC >= len(n.NICs) {
		return fmt.Errorf("%w: node %s has no such device", ErrAssignment, n.Name)
	}
	g := &n.GPUs[share.GPU]
	switch {
	case a.whole && g.Tenants > 0,
		!a.overcommit && share.Limit > g.FreeMemory(),
		share.Limit > g.Capacity, !a.overcommitCores && share.Cores > g.FreeCores(),
		share.Profile != "" && placed == 0,
		share.NIC >= 0 && n.NICs[share.NIC].Granted > 0:
		return fmt.Errorf("%w: GPU %s of node %s has too little left", ErrAssignment, g.UUID, n.Name)
	}
	g.Granted += share.Limit
	g.Cores += share.Cores
	g.Slices |= share.slices(g)
	g.Instances |= placed
	g.Tenants++
	if share.NIC >= 0 {
		n.NICs[share.NIC].Granted++
	}
	return nil
}

// takeBack undoes give.
func (n *Node) takeBack(share *Share) {
	g := &n.GPUs[share.GPU]
	g.Granted -= share.Limit
	g.Cores -= share.Cores
	if share.Profile != "" {
		g.Slices &^= share.slices(g)
		g.Instances &^= share.placed(g)
	}
	g.Tenants--
	if share.NIC >= 0 {
		n.NICs[share.NIC].Granted--
	}
}

// Undo returns what [Inventory.Reserve] took for the same assignment, also when
// other assignments were reserved in between.
func (inv *Inventory) Undo(a Assignment) {
	n := &inv.nodes[a.Node]
	for i := range a.Shares {
		n.takeBack(&a.Shares[i])
	}
	n.CPUUsed -= a.CPU
	n.MemoryUsed -= a.Memory
	inv.changed(a.Node, a.group, -1)
}

// logLimit bounds the log. An index that is further behind is rebuilt.
const logLimit = 1 << 16

// changed updates a node's entry after by more tenants of a group have come.
func (inv *Inventory) changed(node int, g group, by int32) {
	r := &inv.entries[node]
	inv.turnover.count(by)
	r.held[g] += by
	r.refresh(&inv.nodes[node])
	if len(inv.log) >= logLimit {
		half := len(inv.log) / 2
		inv.log = append(inv.log[:0], inv.log[half:]...)
		inv.logged += half
	}
	inv.log = append(inv.log, int32(node))
}
