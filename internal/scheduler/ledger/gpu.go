package ledger

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// gpu is a GPU with its devices: one, or its MIG instances. Agents of earlier versions published two for each GPU.
type gpu struct {
	uuid    string
	devices []*device
	class   *gpuClass
	// idle is the GPU while nobody has it.
	idle     alloc.GPU
	location location
	// division is nil for a GPU that is not in MIG mode.
	division *division
}

// location is where in its machine a GPU is; texts are empty and the number is negative where that is unknown.
type location struct {
	clique, pcieSwitch, root string
	numa                     int64
}

// left is a GPU that is published and not in the inventory, and why.
type left struct{ uuid, why string }

// sick is a MIG instance that takes nobody who does not have it already, on a GPU of a node.
type sick struct {
	*device
	gpu  int
	mask uint32
}

// device is the one that a share takes, nil for none.
func (g *gpu) device(share *alloc.Share) *device {
	var found *device
	for _, d := range g.devices {
		switch {
		case share.Profile != "":
			if d.profile == share.Profile && d.start == share.Start {
				return d
			}
		case d.profile != "":
		case found == nil, share.Whole && !d.shared:
			found = d
		}
	}
	return found
}

// read works out what the inventory is told of the GPU.
func (g *gpu) read(has counters, s *sorts) {
	first := g.devices[0]
	if shared := slices.IndexFunc(g.devices, func(d *device) bool { return d.shared }); shared >= 0 {
		first = g.devices[shared]
	}
	g.idle = alloc.GPU{UUID: g.uuid, Index: -1, Capacity: first.memory, SwapMemory: first.swap, MostSwapMemory: first.mostSwap, Slots: first.slots, DefaultCores: first.cores}
	g.idle.Model, _ = first.text(v1alpha1.AttributeModel)
	if a, ok := first.attribute(v1alpha1.AttributeIndex); ok && a.IntValue != nil {
		g.idle.Index = int(min(max(*a.IntValue, -1), 1<<16))
	}
	g.idle.Capability.Compute = first.compute()
	g.location = first.location()
	if !slices.ContainsFunc(g.devices, func(d *device) bool { return d.fault == "" }) {
		g.idle.Fault = first.fault
	}
	switch {
	case slices.ContainsFunc(g.devices, func(d *device) bool { return d.profile != "" }):
		g.cut(has, s)
	case first.fault != "":
		g.idle.Fault = first.fault
	}
}

// cut works out what the inventory is told of the GPU's instances. One whose instances contradict each other takes none.
func (g *gpu) cut(has counters, s *sorts) {
	made, err := g.divide(has)
	if err == nil {
		err = s.model(made.profiles)
	}
	if err != nil {
		g.idle.Fault = err.Error()
		return
	}
	g.division = made
	g.idle.Profiles, g.idle.Slices, g.idle.Slots, g.idle.DefaultCores = made.profiles, made.taken, 0, 0
	for _, d := range g.devices {
		g.idle.Capacity = max(g.idle.Capacity, d.memory)
	}
}

// compute is the compute capability, as [alloc.Capability] has it; 0 where it is unknown.
func (d *device) compute() int {
	if a, ok := d.spec.Attributes[v1alpha1.NVIDIADriver+"/cudaComputeCapability"]; ok && a.VersionValue != nil {
		parts := strings.SplitN(*a.VersionValue, ".", 3)
		major, err := strconv.ParseUint(parts[0], 10, 8)
		if err == nil && len(parts) > 1 {
			minor, _ := strconv.ParseUint(parts[1], 10, 6)
			return int(major*100 + minor)
		}
	}
	architecture, _ := d.text(v1alpha1.AttributeArchitecture)
	return alloc.ComputeOf(architecture)
}

func (d *device) location() location {
	at := location{numa: -1}
	at.clique, _ = d.text(v1alpha1.AttributeNVLinkClique)
	at.pcieSwitch, _ = d.text(v1alpha1.AttributePCIeSwitch)
	if a, ok := d.spec.Attributes[resourcev1.QualifiedName(deviceattribute.StandardDeviceAttributePCIeRoot)]; ok && a.StringValue != nil {
		at.root = *a.StringValue
	}
	if a, ok := d.attribute(v1alpha1.AttributeNUMANode); ok && a.IntValue != nil {
		at.numa = *a.IntValue
	}
	return at
}

// relation says how near two GPUs are.
func (a *location) relation(b *location) alloc.Relation {
	switch {
	case a.clique != "" && a.clique == b.clique:
		return alloc.RelationNVLink
	case a.pcieSwitch != "" && a.pcieSwitch == b.pcieSwitch:
		return alloc.RelationSwitch
	case a.root != "" && a.root == b.root:
		return alloc.RelationHost
	case a.numa >= 0 && a.numa == b.numa:
		return alloc.RelationNUMA
	case a.numa >= 0 && b.numa >= 0:
		return alloc.RelationSystem
	}
	return alloc.RelationNone
}

// numbering numbers the places of a node's GPUs, from 1 on, each by the kind and the name of the place.
type numbering map[[2]string]uint16

func (by numbering) number(kind, name string, known bool) uint16 {
	if !known {
		return 0
	}
	id := [2]string{kind, name}
	if by[id] == 0 {
		by[id] = uint16(len(by) + 1)
	}
	return by[id]
}

func (by numbering) of(at *location) alloc.Location {
	return alloc.Location{
		NUMA: by.number("node", strconv.FormatInt(at.numa, 10), at.numa >= 0), Root: by.number("root", at.root, at.root != ""),
		Switch: by.number(v1alpha1.AttributePCIeSwitch, at.pcieSwitch, at.pcieSwitch != ""), Clique: by.number("clique", at.clique, at.clique != ""),
	}
}

// assemble makes the GPUs of a node from its pools. The inventory has the first of them where there are too many, or where
// two pools name the same.
func (n *node) assemble() {
	var all []*gpu
	n.idle, n.left, n.sick = &alloc.Node{}, nil, nil
	seen := map[string]bool{}
	for _, p := range n.pools {
		for _, g := range p.gpus {
			if seen[g.uuid] {
				n.left = append(n.left, left{g.uuid, "two pools of its node have it"})
				continue
			}
			seen[g.uuid] = true
			all = append(all, g)
		}
	}
	slices.SortStableFunc(all, func(a, b *gpu) int {
		return cmp.Or(cmp.Compare(a.idle.Index, b.idle.Index), strings.Compare(a.uuid, b.uuid))
	})
	for _, g := range all[min(len(all), alloc.MaxGPUs):] {
		n.left = append(n.left, left{g.uuid, "its node has more than " + strconv.Itoa(alloc.MaxGPUs) + " GPUs"})
	}
	all = all[:min(len(all), alloc.MaxGPUs)]
	known, numbers := false, numbering{}
	for at, g := range all {
		n.idle.GPUs = append(n.idle.GPUs, g.idle)
		n.idle.GPUs[at].Location = numbers.of(&g.location)
		row := make([]alloc.Relation, len(all))
		for i, other := range all {
			if row[i] = g.location.relation(&other.location); other != g && row[i] != alloc.RelationNone {
				known = true
			}
		}
		n.idle.Near = append(n.idle.Near, row)
		if g.division != nil {
			for d, mask := range g.division.sick {
				n.sick = append(n.sick, sick{d, at, mask})
			}
		}
	}
	if !known {
		n.idle.Near = nil
	}
	n.idle.NICs = n.cards(all)
}
