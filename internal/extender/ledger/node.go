package ledger

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// errNotHeld says that a node tells of its GPUs and not what is held of them.
var errNotHeld = errors.New("annotation " + v1alpha1.HeldAnnotation + " is not there, which its agent writes again within ten minutes, and when it starts")

// nodeView is what is read of a node.
type nodeView struct {
	there bool
	// cpu is in thousandths of a processor, memory in bytes.
	cpu    int64
	memory uint64
	// gpus and held are the annotations; those that are not there are empty.
	gpus, held string
}

// node is what is known of one. Pods may be on it before it is there.
type node struct {
	name string
	view nodeView
	// gpus are those of the annotation, by index, at most as many as the allocator takes, and varieties has one for each.
	// more are the UUIDs of the others.
	gpus      []v1alpha1.NodeGPU
	varieties []*variety
	more      []string
	held      v1alpha1.NodeHeld
	// fault says why the annotations cannot be read; then the node has no GPUs.
	fault string

	// cpu and memory are the sums of what pods ask that are here or that it is reserved for.
	cpu    int64
	memory uint64
	// holders are the pods that have shares here.
	holders map[types.UID]*pod
	// strangers are what the inventory counts beside holders, by what the agent holds, and disputes what pods and agent
	// say differently.
	strangers map[shareID]alloc.Assignment
	disputes  map[shareID]*dispute
	// fences are those of disputes.
	fences map[string]reason
}

// viewOfNode reads a node.
func viewOfNode(object *corev1.Node) nodeView {
	if object == nil {
		return nodeView{}
	}
	return nodeView{
		there: true, cpu: bounded(object.Status.Allocatable.Cpu().MilliValue()), memory: uint64(bounded(object.Status.Allocatable.Memory().Value())),
		gpus: object.Annotations[v1alpha1.GPUsAnnotation], held: object.Annotations[v1alpha1.HeldAnnotation],
	}
}

func (l *Ledger) setNode(name string, view nodeView) {
	n := l.nodes[name]
	if n == nil && !view.there || n != nil && n.view == view {
		return
	}
	n = l.node(name)
	before := n.view
	n.view = view
	how := hostIsStale
	if before.there != view.there || before.gpus != view.gpus || before.held != view.held {
		how = l.read(n)
	}
	if before.cpu != view.cpu || before.memory != view.memory || before.there != view.there {
		how = max(how, hostIsStale)
	}
	l.touch(name, how)
}

// read reads the annotations of a node that have changed, and returns what of the node has.
func (l *Ledger) read(n *node) staleness {
	sums, gpus, fault := n.held.GPUs, n.gpus, n.fault
	var all v1alpha1.NodeGPUs
	var err error
	n.fault, n.held, n.more = "", v1alpha1.NodeHeld{}, nil
	if n.view.gpus != "" {
		all, err = v1alpha1.ParseNodeGPUs(n.view.gpus)
	}
	switch {
	case err != nil || n.view.gpus == "" && n.view.held == "":
	case n.view.held == "":
		// Somebody has removed it. What tenants of other kinds hold, and pods that have ended, is not known until the agent writes it
		// again, and would be given twice.
		err = errNotHeld
	default:
		n.held, err = v1alpha1.ParseNodeHeld(n.view.held)
	}
	if err != nil {
		n.fault, all = err.Error(), v1alpha1.NodeGPUs{}
	}
	n.take(all.GPUs)
	if slices.Equal(gpus, n.gpus) && slices.Equal(sums, n.held.GPUs) && fault == n.fault {
		return heldIsStale
	}
	if !slices.Equal(gpus, n.gpus) {
		before := n.varieties
		n.varieties = l.varieties.enter(n.gpus) // before the others leave, so that varieties that stay keep their numbers
		l.varieties.leave(before)
	}
	return gpusAreStale
}

// take notes the GPUs of a node in the order of their indexes.
func (n *node) take(gpus []v1alpha1.NodeGPU) {
	slices.SortFunc(gpus, func(a, b v1alpha1.NodeGPU) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.UUID, b.UUID))
	})
	for _, g := range gpus[min(len(gpus), alloc.MaxGPUs):] {
		n.more = append(n.more, g.UUID)
	}
	n.gpus = gpus[:min(len(gpus), alloc.MaxGPUs)]
}

// idle reports whether nothing is left to know of a node.
func (n *node) idle() bool {
	return !n.view.there && len(n.holders) == 0 && n.cpu == 0 && n.memory == 0 && len(n.strangers) == 0
}

// cpuUsed and memoryUsed are what pods have of the host, at most all: pods that the kubelet admits without a scheduler may
// ask for more.
func (n *node) cpuUsed() int64     { return min(n.cpu, n.view.cpu) }
func (n *node) memoryUsed() uint64 { return min(n.memory, n.view.memory) }

// describe is a node for the inventory, with what others than pods of slots hold of its GPUs.
func (n *node) describe() alloc.Node {
	described := alloc.Node{
		Name: n.name, CPU: n.view.cpu, CPUUsed: n.cpuUsed(), Memory: n.view.memory, MemoryUsed: n.memoryUsed(),
		GPUs: make([]alloc.GPU, len(n.gpus)),
	}
	numbers := numbering{}
	for i := range n.gpus {
		g := &n.gpus[i]
		described.GPUs[i] = alloc.GPU{
			UUID: g.UUID, Index: g.Index, Model: g.Model, Capacity: min(g.Memory, mostAmount), ContextBytes: min(g.ContextBytes, mostAmount),
			Fault: g.Fault, Slots: g.Slots, Class: n.varieties[i].number, Capability: alloc.Capability{Compute: alloc.ComputeOf(g.Architecture)},
			Location: numbers.of(g),
		}
		if described.GPUs[i].Class == 0 && g.Fault == "" {
			described.GPUs[i].Fault = "the cluster has more kinds of GPUs than Divvy can tell apart"
		}
		if k := slices.IndexFunc(n.held.GPUs, func(h v1alpha1.GPUHeld) bool { return h.UUID == g.UUID }); k >= 0 {
			others(&described.GPUs[i], &n.held.GPUs[k])
		}
	}
	described.Near = relations(n.gpus)
	return described
}

// others counts what tenants that are no pods of slots have of a GPU. Where they share it in another way than slots do, it
// has nothing left.
func others(g *alloc.GPU, held *v1alpha1.GPUHeld) {
	g.Granted, g.Cores, g.Tenants = min(held.Memory, mostAmount), held.Cores, held.Tenants
	if held.Form != "" && held.Form != v1alpha1.BackendSlice {
		g.Granted, g.Cores = max(g.Granted, g.Capacity), max(g.Cores, v1alpha1.MaxCores)
	}
}

// numbering numbers the places of a node's GPUs, from 1 on, each by the kind and the name of the place.
type numbering map[[2]string]uint16

func (by numbering) number(kind, name string) uint16 {
	if name == "" {
		return 0
	}
	id := [2]string{kind, name}
	if by[id] == 0 {
		by[id] = uint16(len(by) + 1)
	}
	return by[id]
}

func (by numbering) of(g *v1alpha1.NodeGPU) alloc.Location {
	numa := ""
	if g.NUMANode >= 0 {
		numa = strconv.Itoa(g.NUMANode)
	}
	return alloc.Location{
		NUMA: by.number("node", numa), Root: by.number("root", g.PCIeRoot),
		Switch: by.number("switch", g.PCIeSwitch), Clique: by.number("clique", g.NVLinkClique),
	}
}

// relations are those between every two GPUs, nil where none is known.
func relations(gpus []v1alpha1.NodeGPU) (near [][]alloc.Relation) {
	known := false
	for i := range gpus {
		row := make([]alloc.Relation, len(gpus))
		for k := range gpus {
			row[k] = relation(&gpus[i], &gpus[k])
			known = known || i != k && row[k] != alloc.RelationNone
		}
		near = append(near, row)
	}
	if !known {
		return nil
	}
	return near
}

func relation(a, b *v1alpha1.NodeGPU) alloc.Relation {
	same := func(x, y string) bool { return x != "" && x == y }
	switch {
	case same(a.NVLinkClique, b.NVLinkClique):
		return alloc.RelationNVLink
	case same(a.PCIeSwitch, b.PCIeSwitch):
		return alloc.RelationSwitch
	case same(a.PCIeRoot, b.PCIeRoot):
		return alloc.RelationHost
	case a.NUMANode < 0 || b.NUMANode < 0:
		return alloc.RelationNone
	case a.NUMANode == b.NUMANode:
		return alloc.RelationNUMA
	}
	return alloc.RelationSystem
}

// capacity is what a GPU has for tenants, 0 for one that is not there.
func (n *node) capacity(uuid string) uint64 {
	for i := range n.gpus {
		if n.gpus[i].UUID == uuid {
			return min(n.gpus[i].Memory, mostAmount)
		}
	}
	return 0
}

// oneLine puts the lines of a foreign text into one.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
