package alloc

import (
	"errors"
	"fmt"
	"slices"
)

// ErrInventory marks a description of nodes that contradicts itself.
var ErrInventory = errors.New("invalid inventory")

// Inventory is the nodes of a cluster, or one host, what is given of them, and the policy that places on them.
type Inventory struct {
	nodes   []Node // at a position without a node, the zero value
	entries []entry
	present int // how many of nodes there are
	named   map[string]int
	vacant  []int // positions without a node, the greatest first
	// held is what was reserved of the nodes, by name, also of nodes that have gone.
	held   map[string][]holding
	fences map[string]map[string]string // by node and GPU, see Fence

	kinds  kinds
	policy Policy
	shapes shapes
	work   *workload
	mixes  *Mixes

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
	same   sameStates
	// exactly tells that an evaluation looked at exact amounts, which a state does not have.
	exactly bool
	// looked counts arrangements and the sets of GPUs that were looked at for them.
	looked int
	// observed counts requests; the random baseline draws by it.
	observed uint64
	turnover turnover
}

// NewInventory makes an inventory of nodes, which the caller must not use
// afterwards. Policies break their last ties by the order of the nodes.
func NewInventory(nodes []Node, policy Policy) (*Inventory, error) {
	return makeInventory(nodes, policy, &Mixes{})
}

func makeInventory(nodes []Node, policy Policy, learnt *Mixes) (*Inventory, error) {
	if err := policy.validate(len(nodes)); err != nil {
		return nil, err
	}
	inv := &Inventory{
		policy: policy, named: make(map[string]int, len(nodes)), held: map[string][]holding{}, mixes: learnt,
		nodes: make([]Node, 0, len(nodes)), entries: make([]entry, 0, len(nodes)), stamp: make([]uint32, 0, len(nodes)),
	}
	inv.shapes.init()
	inv.kinds.init()
	for i := range nodes {
		n := &nodes[i]
		if err := n.validate(); err != nil {
			return nil, err
		}
		if _, twice := inv.named[n.Name]; twice {
			return nil, fmt.Errorf("%w: two nodes are named %q", ErrInventory, n.Name)
		}
		if err := inv.enter(*n); err != nil {
			return nil, err
		}
	}
	inv.work = newWorkload(inv)
	inv.remodel()
	return inv, nil
}

// Host makes the inventory of one host. Its shares go to the fullest GPU on which
// they fit.
func Host(gpus []GPU) (*Inventory, error) {
	return HostWith(gpus, &Mixes{})
}

// HostWith is [Host] with what was learnt of requests for MIG instances, as by [Inventory.Learn].
func HostWith(gpus []GPU, learnt *Mixes) (*Inventory, error) {
	policy, err := PolicyNamed("bestfit")
	if err != nil {
		return nil, err
	}
	return makeInventory([]Node{{GPUs: gpus}}, policy, learnt)
}

// enter puts a node at a position without one.
func (inv *Inventory) enter(n Node) error {
	k, err := inv.kinds.kindOf(&n, inv.mixes)
	if err != nil {
		return err
	}
	at := len(inv.nodes)
	if free := len(inv.vacant); free > 0 {
		at, inv.vacant = inv.vacant[free-1], inv.vacant[:free-1]
	} else {
		inv.nodes, inv.entries, inv.stamp = append(inv.nodes, Node{}), append(inv.entries, entry{}), append(inv.stamp, 0)
	}
	inv.kinds.count(k, 1)
	inv.nodes[at], inv.entries[at] = n, entry{}
	inv.entries[at].state.kind = k
	inv.named[n.Name] = at
	inv.present++
	inv.settle(at)
	return nil
}

// leave takes a node from its position.
func (inv *Inventory) leave(at int) {
	delete(inv.named, inv.nodes[at].Name)
	inv.kinds.count(inv.entries[at].state.kind, -1)
	inv.nodes[at], inv.entries[at] = Node{}, entry{absent: true}
	inv.present--
	place, _ := slices.BinarySearchFunc(inv.vacant, at, func(a, b int) int { return b - a })
	inv.vacant = slices.Insert(inv.vacant, place, at)
	inv.touch(at)
}

// Put adds nodes, or replaces what was known of the nodes of those names. The amounts in use that a description has are
// those of others; what was reserved there stays reserved, also of a node that had gone. A GPU that has gone keeps what was
// reserved of it until it is back or that is released. The caller must not use the nodes afterwards. Many nodes at once cost
// less than one after the other; after an error, some of them may have been put.
func (inv *Inventory) Put(nodes ...Node) error {
	if err := inv.policy.validate(len(inv.nodes) + len(nodes)); err != nil {
		return err
	}
	for i := range nodes {
		if err := nodes[i].validate(); err != nil {
			return err
		}
	}
	defer inv.modelChanges()
	for _, n := range nodes {
		at, known := inv.named[n.Name]
		switch {
		case known && inv.kinds.id(&n) == inv.kinds.all[inv.entries[at].state.kind].id:
			inv.nodes[at] = n
			inv.settle(at)
			continue
		case known:
			inv.leave(at)
		}
		if err := inv.enter(n); err != nil {
			return err
		}
	}
	return nil
}

// Remove takes a node away. What was reserved there waits for the node to come back, or to be released.
func (inv *Inventory) Remove(name string) error {
	at, known := inv.named[name]
	if !known {
		return fmt.Errorf("%w: there is no node %q", ErrInventory, name)
	}
	inv.leave(at)
	inv.modelChanges()
	return nil
}

// SetHost changes what a node has of processors, in thousandths, and of memory, in bytes, and what others than those for
// whom something is reserved here use of them.
func (inv *Inventory) SetHost(name string, cpu, cpuUsed int64, memory, memoryUsed uint64) error {
	at, known := inv.named[name]
	if !known {
		return fmt.Errorf("%w: there is no node %q", ErrInventory, name)
	}
	inv.clear(at)
	n := inv.nodes[at]
	n.CPU, n.CPUUsed, n.Memory, n.MemoryUsed = cpu, cpuUsed, memory, memoryUsed
	return inv.Put(n)
}

// Position is that of a node in assignments and sets of nodes. It stays while the node is there.
func (inv *Inventory) Position(name string) (position int, ok bool) {
	position, ok = inv.named[name]
	return position, ok
}

// Len is one more than the greatest position.
func (inv *Inventory) Len() int { return len(inv.nodes) }

// Node is a copy of the node at a position, with everything in use; the caller must not change its slices. It is the zero
// value where there is none.
func (inv *Inventory) Node(position int) Node { return inv.nodes[position] }

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
	if g.Cores < 0 || g.Tenants < 0 || g.DefaultCores < 0 || g.DefaultCores > 100 || g.Slots < 0 {
		return "amounts are negative or beyond 100 percent"
	}
	for _, p := range g.Profiles {
		if p.Size < 1 || len(p.Starts) == 0 || slices.Min(p.Starts) < 0 || slices.Max(p.Starts)+p.Size > 32 {
			return fmt.Sprintf("MIG profile %q lies outside memory slices 0 to 31", p.Name)
		}
	}
	return ""
}

// logLimit bounds the log. An index that is further behind is rebuilt.
const logLimit = 1 << 16

// changed updates a node's entry after by more tenants of a group have come.
func (inv *Inventory) changed(node int, g group, by int32) {
	r := &inv.entries[node]
	r.held[g] += by
	r.refresh(&inv.nodes[node])
	inv.touch(node)
}

// touch tells the indexes that a node has changed.
func (inv *Inventory) touch(node int) {
	if len(inv.log) >= logLimit {
		half := len(inv.log) / 2
		inv.log = append(inv.log[:0], inv.log[half:]...)
		inv.logged += half
	}
	inv.log = append(inv.log, int32(node))
}
