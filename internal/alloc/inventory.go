package alloc

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrInventory marks nodes that cannot be.
var ErrInventory = errors.New("invalid inventory")

// Inventory is the nodes of a cluster, or one host, under a policy.
type Inventory struct {
	nodes   []Node
	records []record
	kinds   []kind
	policy  Policy
	classes map[Request]*class
	work    *workload

	// log has the nodes that changed, in order; logged counts those dropped
	// from its front. An index that has not read them is read anew.
	log    []int32
	logged int
	// stamp tells which nodes a reader of the log has seen already.
	stamp []uint32
	tick  uint32
	// option and after are what is being evaluated: terms are called through an
	// interface, so that they would be allocated anew every time.
	option option
	after  state
	// decisions counts searches, for the random baseline.
	decisions uint64
	turnover  turnover
}

// NewInventory takes nodes over: they must not be used by the caller after.
// Policies break their last ties by the order of the nodes.
func NewInventory(nodes []Node, policy Policy) (*Inventory, error) {
	if err := policy.validate(len(nodes)); err != nil {
		return nil, err
	}
	inv := &Inventory{
		nodes: nodes, records: make([]record, len(nodes)), policy: policy,
		classes: map[Request]*class{}, stamp: make([]uint32, len(nodes)),
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
		inv.records[i].state.kind = k
		inv.records[i].refresh(n)
	}
	inv.work = newWorkload(inv)
	return inv, nil
}

// Host is the inventory of one host, whose shares go to the fullest GPU on
// which they fit.
func Host(gpus []GPU) (*Inventory, error) {
	policy, err := PolicyNamed("bestfit")
	if err != nil {
		return nil, err
	}
	return NewInventory([]Node{{GPUs: gpus}}, policy)
}

// Len is the number of nodes.
func (inv *Inventory) Len() int { return len(inv.nodes) }

// Node returns a node as it is now; it must not be changed.
func (inv *Inventory) Node(i int) *Node { return &inv.nodes[i] }

func (n *Node) validate() error {
	fault := func(format string, args ...any) error {
		return fmt.Errorf("%w: node %q: %s", ErrInventory, n.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case len(n.GPUs) > MaxGPUs:
		return fault("%d GPUs are more than %d", len(n.GPUs), MaxGPUs)
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

// fault is what is wrong with a GPU's description.
func (g *GPU) fault() string {
	if g.Cores < 0 || g.Tenants < 0 {
		return "amounts are negative"
	}
	for _, p := range g.Profiles {
		if p.Size < 1 || len(p.Starts) == 0 || slices.Min(p.Starts) < 0 || slices.Max(p.Starts)+p.Size > 32 {
			return fmt.Sprintf("MIG profile %q lies outside slots 0 to 31", p.Name)
		}
	}
	return ""
}

// kindID is equal for nodes that are alike when empty.
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
		g.UUID, g.Granted, g.Cores, g.Tenants, g.Slots = "", 0, 0, 0, 0
		k.gpus = append(k.gpus, g)
	}
	return k
}

// class returns the class of a request, a new one when it was never seen. Only
// plain requests are kept: the others are as many as there are tenants.
func (inv *Inventory) class(r Request) *class {
	if c := inv.classes[r]; c != nil {
		return c
	}
	c := inv.newClass(r)
	if r.plain() {
		inv.classes[r] = c
	}
	return c
}

// Reserve takes what an assignment says. It fails, and takes nothing, when the
// inventory has changed so that the assignment does not fit any more.
func (inv *Inventory) Reserve(a Assignment) error {
	if a.Node < 0 || a.Node >= len(inv.nodes) {
		return fmt.Errorf("%w: no node %d", ErrAssignment, a.Node)
	}
	n := &inv.nodes[a.Node]
	if a.CPU > n.CPU-n.CPUUsed || a.Memory > n.Memory-min(n.MemoryUsed, n.Memory) {
		return fmt.Errorf("%w: node %s has too little CPU or memory left", ErrAssignment, n.Name)
	}
	for i := range a.Grants {
		if err := n.grant(&a.Grants[i], &a); err != nil {
			for j := range a.Grants[:i] {
				n.revoke(&a.Grants[j])
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

func (n *Node) grant(grant *Grant, a *Assignment) error {
	if grant.GPU < 0 || grant.GPU >= len(n.GPUs) || grant.NIC >= len(n.NICs) {
		return fmt.Errorf("%w: node %s has no such device", ErrAssignment, n.Name)
	}
	g := &n.GPUs[grant.GPU]
	mask := uint32(0)
	if grant.Profile != "" {
		mask = g.slots(grant.Profile) << grant.Start
	}
	switch {
	case a.whole && g.Tenants > 0,
		!a.overcommit && grant.Limit > g.FreeMemory(),
		grant.Limit > g.Capacity, !a.overcommitCores && grant.Cores > g.FreeCores(),
		grant.Profile != "" && (mask == 0 || g.Slots&mask != 0),
		grant.NIC >= 0 && n.NICs[grant.NIC].Granted > 0:
		return fmt.Errorf("%w: GPU %s of node %s has too little left", ErrAssignment, g.UUID, n.Name)
	}
	g.Granted += grant.Limit
	g.Cores += grant.Cores
	g.Slots |= mask
	g.Tenants++
	if grant.NIC >= 0 {
		n.NICs[grant.NIC].Granted++
	}
	return nil
}

func (n *Node) revoke(grant *Grant) {
	g := &n.GPUs[grant.GPU]
	g.Granted -= grant.Limit
	g.Cores -= grant.Cores
	if grant.Profile != "" {
		g.Slots &^= g.slots(grant.Profile) << grant.Start
	}
	g.Tenants--
	if grant.NIC >= 0 {
		n.NICs[grant.NIC].Granted--
	}
}

// Undo gives back what [Inventory.Reserve] took for the same assignment: after
// it the inventory is as it was before, whatever came in between.
func (inv *Inventory) Undo(a Assignment) {
	n := &inv.nodes[a.Node]
	for i := range a.Grants {
		n.revoke(&a.Grants[i])
	}
	n.CPUUsed -= a.CPU
	n.MemoryUsed -= a.Memory
	inv.changed(a.Node, a.group, -1)
}

// logLimit bounds the log: indexes that are further behind are read anew.
const logLimit = 1 << 16

func (inv *Inventory) changed(node int, g group, by int32) {
	r := &inv.records[node]
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
