package ledger

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Ledger is what a cluster's nodes have and what of it is given. It grows with the cluster: what a claim changes costs the
// same in a cluster of any size.
type Ledger struct {
	inv     *alloc.Inventory
	nodes   map[string]*node
	stale   map[string]staleness // nodes of which the inventory does not know the newest
	classes map[string]*resourcev1.DeviceClass
	pools   map[string]*published
	sorts   sorts

	claims  map[string]*holding
	holders map[string]map[string]bool // by pool: the claims with devices of it
	takers  map[deviceID]int           // how many claims have a device that one alone can have
	flights map[string]flight          // what Reserve took, by claim
	turns   map[string]turn            // what is being written of claims' suspensions

	fences map[gpuID]string // of callers
	fenced map[string]bool  // nodes with a GPU that the inventory fences

	selectors selectors
}

// staleness says what of a node has changed.
type staleness bool

const (
	hostIsStale  staleness = false
	gpusAreStale staleness = true
)

// deviceID names a device of a cluster.
type deviceID struct{ pool, name string }

// gpuID names a GPU of a cluster.
type gpuID struct{ node, uuid string }

// node is what is known of one. It may have pools before it is there.
type node struct {
	name  string
	there bool
	// cpu and cpuUsed are in thousandths of a processor, memory and memoryUsed in bytes.
	cpu, cpuUsed       int64
	memory, memoryUsed uint64
	pools              []*published // by name
	// idle has the GPUs as they are while nobody has them, in the order of the inventory. It is nil after a change of pools.
	idle *alloc.Node
	sick []sick
	left []left
}

// New makes the ledger of an empty cluster.
func New(policy alloc.Policy) (*Ledger, error) {
	inv, err := alloc.NewInventory(nil, policy)
	if err != nil {
		return nil, err
	}
	l := &Ledger{
		inv: inv, nodes: map[string]*node{}, stale: map[string]staleness{}, classes: map[string]*resourcev1.DeviceClass{},
		pools: map[string]*published{}, claims: map[string]*holding{}, holders: map[string]map[string]bool{},
		takers:  map[deviceID]int{},
		flights: map[string]flight{}, turns: map[string]turn{}, fences: map[gpuID]string{}, fenced: map[string]bool{},
	}
	l.sorts.init()
	l.selectors.init(context.Background())
	return l, nil
}

// Inventory is what there is, with everything that was told until this call. It is the same object at each call; whoever
// places with it takes back what they reserve, and uses [Ledger.Reserve] for what is to stay.
func (l *Ledger) Inventory() *alloc.Inventory {
	l.flush()
	return l.inv
}

// SetNode takes in a node, of which it reads what can be allocated of processors and memory; nil is for one that is gone.
func (l *Ledger) SetNode(name string, object *corev1.Node) {
	if object == nil {
		if n := l.nodes[name]; n != nil && n.there {
			n.there, n.cpu, n.memory, n.cpuUsed, n.memoryUsed = false, 0, 0, 0, 0
			l.change(n, gpusAreStale)
		}
		return
	}
	n := l.node(name)
	cpu, memory := bounded(object.Status.Allocatable.Cpu().MilliValue()), uint64(bounded(object.Status.Allocatable.Memory().Value()))
	if n.there && n.cpu == cpu && n.memory == memory {
		return
	}
	how := hostIsStale
	if !n.there {
		how = gpusAreStale
	}
	n.there, n.cpu, n.memory = true, cpu, memory
	l.change(n, how)
}

// SetHostUse says what the pods of a node ask of it: thousandths of a processor, and bytes. A node that is not there has no
// use; it begins with none.
func (l *Ledger) SetHostUse(name string, cpu int64, memory uint64) {
	n := l.nodes[name]
	cpu, memory = bounded(cpu), min(memory, mostAmount)
	if n == nil || !n.there || n.cpuUsed == cpu && n.memoryUsed == memory {
		return
	}
	n.cpuUsed, n.memoryUsed = cpu, memory
	l.change(n, hostIsStale)
}

// SetClasses takes in all device classes.
func (l *Ledger) SetClasses(classes []*resourcev1.DeviceClass) {
	clear(l.classes)
	for _, class := range classes {
		l.classes[class.Name] = class
	}
	for _, class := range classes {
		if name := class.Spec.ExtendedResourceName; name != nil && l.classes[*name] == nil {
			l.classes[*name] = class
		}
	}
}

// DeviceClass returns a device class by its name or by the extended resource that it gives, nil where there is none.
func (l *Ledger) DeviceClass(name string) *resourcev1.DeviceClass { return l.classes[name] }

// mostAmount bounds every amount that foreign objects tell, in whatever unit: sums of 65,536 of them are still integers.
const mostAmount = 1 << 47

func bounded(n int64) int64 { return min(max(n, 0), mostAmount) }

func (l *Ledger) node(name string) *node {
	n := l.nodes[name]
	if n == nil {
		n = &node{name: name}
		l.nodes[name] = n
	}
	return n
}

// change notes that the inventory is to be told of a node.
func (l *Ledger) change(n *node, how staleness) {
	if how == gpusAreStale {
		n.idle = nil
	}
	l.stale[n.name] = l.stale[n.name] || how
	if !n.there && len(n.pools) == 0 {
		delete(l.nodes, n.name)
	}
}

// restate has the inventory be told of a node with the same GPUs.
func (l *Ledger) restate(n *node) { l.stale[n.name] = gpusAreStale }

// flush tells the inventory of all nodes that have changed.
func (l *Ledger) flush() {
	if len(l.stale) == 0 {
		return
	}
	var put []alloc.Node
	names := slices.Sorted(maps.Keys(l.stale))
	for _, name := range names {
		n, how := l.nodes[name], l.stale[name]
		_, known := l.inv.Position(name)
		switch {
		case n == nil || !n.there:
			if known {
				_ = l.inv.Remove(name) // it is there
			}
		case known && how == hostIsStale:
			_ = l.inv.SetHost(name, n.cpu, n.cpuUsed, n.memory, n.memoryUsed) // it is there, and nothing is negative
		default:
			put = append(put, l.describe(n))
		}
	}
	if len(put) > 0 && l.inv.Put(put...) != nil {
		l.putEach(put)
	}
	clear(l.stale)
	for _, name := range names {
		l.noteFences(name)
	}
}

// putEach puts nodes that the inventory refused together: without their GPUs where it refuses one of them.
func (l *Ledger) putEach(put []alloc.Node) {
	for i := range put {
		n := l.nodes[put[i].Name]
		one := l.describe(n)
		err := l.inv.Put(one)
		if err == nil {
			continue
		}
		for k := range one.GPUs {
			n.left = append(n.left, left{one.GPUs[k].UUID, err.Error()})
		}
		one.GPUs, one.Near, one.NICs = nil, nil, nil
		if l.inv.Put(one) != nil {
			_ = l.inv.Remove(one.Name) // beyond the most nodes; it may be there in an older form
		}
	}
}

// describe is a node for the inventory.
func (l *Ledger) describe(n *node) alloc.Node {
	if n.idle == nil {
		n.assemble()
	}
	described := alloc.Node{
		Name: n.name, CPU: n.cpu, CPUUsed: n.cpuUsed, Memory: n.memory, MemoryUsed: n.memoryUsed,
		GPUs: slices.Clone(n.idle.GPUs), Near: n.idle.Near, NICs: slices.Clone(n.idle.NICs),
	}
	for _, s := range n.sick {
		if l.takers[deviceID{s.pool.name, s.spec.Name}] == 0 {
			described.GPUs[s.gpu].Slices |= s.mask
		}
	}
	return described
}
