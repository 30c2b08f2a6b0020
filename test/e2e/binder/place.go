// Package binder places pods that ask for shares in a cluster whose scheduler
// counts slots, for tests: it reads what agents say of their nodes, asks the
// allocator where a pod fits, and binds it with the decision as an annotation.
// It looks at GPUs and slots alone, not at processors, memory or affinity.
package binder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// errNoNode is a pod that fits nowhere now.
var errNoNode = errors.New("no share fits")

// machine is a node and what is free on it.
type machine struct {
	name  string
	gpus  []v1alpha1.NodeGPU
	state []alloc.GPU
	slots int64
}

// machines returns the nodes that take pods, with what the pods that were placed
// hold of them, which their own annotations say.
func machines(nodes []*corev1.Node, placed []placement) []machine {
	var all []machine
	for _, n := range nodes {
		text, ok := n.Annotations[v1alpha1.GPUsAnnotation]
		if !ok || n.Spec.Unschedulable || !ready(n) {
			continue
		}
		described, err := v1alpha1.ParseNodeGPUs(text)
		if err != nil {
			continue
		}
		slots := n.Status.Allocatable[v1alpha1.SlotResource]
		m := machine{name: n.Name, gpus: described.GPUs, slots: slots.Value()}
		for _, g := range described.GPUs {
			m.state = append(m.state, alloc.GPU{
				UUID: g.UUID, Index: g.Index, Model: g.Model, Capacity: g.Memory, ContextBytes: g.ContextBytes, Fault: g.Fault,
			})
		}
		for _, p := range placed {
			if p.node == n.Name {
				m.take(p.assignment)
			}
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b machine) int { return cmp.Compare(a.name, b.name) })
	return all
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// take counts what a pod holds.
func (m *machine) take(a v1alpha1.PodAssignment) {
	for _, s := range a.Shares {
		m.slots -= int64(len(s.Containers))
		for _, given := range s.GPUs {
			i := slices.IndexFunc(m.state, func(g alloc.GPU) bool { return g.UUID == given.UUID })
			if i < 0 {
				continue
			}
			g := &m.state[i]
			g.Tenants++
			if s.Whole {
				g.Granted, g.Cores = g.Capacity, 100
				continue
			}
			g.Granted += given.Memory
			g.Cores += s.Config.Guaranteed(given.Cores)
		}
	}
}

// place returns the first node on which all shares of a pod fit, the fullest
// first, and what the pod gets there. It is pure.
func place(ctx context.Context, all []machine, pod string, request v1alpha1.PodRequest) (string, v1alpha1.PodAssignment, error) {
	slices.SortStableFunc(all, func(a, b machine) int { return cmp.Compare(a.free(), b.free()) })
	var refusals []string
	for i := range all {
		assignment, err := all[i].fit(ctx, pod, request)
		if err == nil {
			return all[i].name, assignment, nil
		}
		refusals = append(refusals, all[i].name+": "+err.Error())
	}
	if len(all) == 0 {
		refusals = []string{"no node says what GPUs it has"}
	}
	return "", v1alpha1.PodAssignment{}, fmt.Errorf("%w: %s", errNoNode, strings.Join(strings.Fields(strings.Join(refusals, "; ")), " "))
}

func (m *machine) free() (bytes uint64) {
	for i := range m.state {
		bytes += m.state[i].FreeMemory()
	}
	return bytes
}

// fit places all shares of a pod on one node.
func (m *machine) fit(ctx context.Context, pod string, request v1alpha1.PodRequest) (v1alpha1.PodAssignment, error) {
	left := *m
	left.state = slices.Clone(m.state)
	assignment := v1alpha1.PodAssignment{Pod: pod}
	for _, asked := range request.Shares {
		if left.slots < int64(len(asked.Containers)) {
			return assignment, errors.New("too few slots of " + v1alpha1.SlotResource + " left")
		}
		share, err := left.share(ctx, asked)
		if err != nil {
			return assignment, err
		}
		assignment.Shares = append(assignment.Shares, share)
		left.take(v1alpha1.PodAssignment{Shares: []v1alpha1.ShareAssigned{share}})
	}
	return assignment, nil
}

// share places one share, trying each way to satisfy it: a part of a GPU is
// another amount on each size, the smallest first, and GPUs of one NUMA node are
// those of the first that has enough.
func (m *machine) share(ctx context.Context, asked v1alpha1.ShareRequired) (v1alpha1.ShareAssigned, error) {
	avoid, err := m.unselected(ctx, asked.Selectors)
	if err != nil {
		return v1alpha1.ShareAssigned{}, err
	}
	var last error
	for _, way := range m.ways(asked) {
		r := alloc.Request{Count: asked.GPUs, Whole: asked.Whole, AvoidGPUs: m.avoiding(avoid, way)}
		if !asked.Whole {
			r.Cores = asked.Config.Guaranteed(asked.Cores)
			if way.memory > 0 {
				r.Memory = v1alpha1.Bytes(way.memory)
			}
		}
		inventory, err := alloc.Host(slices.Clone(m.state))
		if err != nil {
			return v1alpha1.ShareAssigned{}, err
		}
		found, err := alloc.Search(inventory, r)
		if err != nil {
			last = err
			continue
		}
		share := v1alpha1.ShareAssigned{Name: asked.Name, Containers: asked.Containers, Whole: asked.Whole, Config: asked.Config}
		for _, g := range found.Shares {
			share.GPUs = append(share.GPUs, v1alpha1.GPUAssigned{UUID: g.UUID, Memory: g.Limit, Cores: asked.Cores})
		}
		return share, nil
	}
	return v1alpha1.ShareAssigned{}, cmp.Or(last, errors.New("no GPU of the size that is asked for"))
}

// way is one way to satisfy a share: GPUs of one size or NUMA node alone, -1 and
// 0 for any.
type way struct {
	memory, size uint64
	numa         int
}

func (m *machine) ways(asked v1alpha1.ShareRequired) []way {
	ways := []way{{memory: asked.Memory, numa: -1}}
	if asked.Part != nil {
		ways = nil
		for _, size := range m.sizes() {
			if memory := asked.Amount().Of(size); memory > 0 {
				ways = append(ways, way{memory: memory, size: size, numa: -1})
			}
		}
	}
	if !asked.SameNUMA {
		return ways
	}
	var near []way
	for _, w := range ways {
		for _, numa := range m.numaNodes() {
			w.numa = numa
			near = append(near, w)
		}
	}
	return near
}

func (m *machine) sizes() []uint64 {
	var all []uint64
	for _, g := range m.gpus {
		all = append(all, g.Memory)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (m *machine) numaNodes() []int {
	var all []int
	for _, g := range m.gpus {
		if g.NUMANode >= 0 {
			all = append(all, g.NUMANode)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// avoiding names the GPUs that a way excludes, beside those that are excluded.
func (m *machine) avoiding(avoid []string, w way) alloc.Names {
	avoid = slices.Clone(avoid)
	for _, g := range m.gpus {
		if w.size > 0 && g.Memory != w.size || w.numa >= 0 && g.NUMANode != w.numa {
			avoid = append(avoid, g.UUID)
		}
	}
	return alloc.Names(strings.Join(avoid, "|"))
}

// unselected returns the GPUs that do not satisfy all selectors.
func (m *machine) unselected(ctx context.Context, selectors []string) ([]string, error) {
	var none []string
	for _, g := range m.gpus {
		for _, expression := range selectors {
			matches, err := selects(ctx, expression, g)
			if err != nil {
				return nil, err
			}
			if !matches {
				none = append(none, g.UUID)
				break
			}
		}
	}
	return none, nil
}
