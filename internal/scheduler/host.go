package scheduler

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
)

// bare are the nodes on which no GPU is published. They change seldom and are asked for with every pod.
type bare struct {
	nodes map[string]bool
	// slices are how many of Divvy's each node has.
	slices map[string]int
	// without is nil after a change.
	without map[string]bool
}

func (b *bare) setNode(name string, there bool) {
	if b.nodes == nil {
		b.nodes = map[string]bool{}
	}
	if b.nodes[name] == there {
		return
	}
	b.without = nil
	if there {
		b.nodes[name] = true
	} else {
		delete(b.nodes, name)
	}
}

// addSlice counts a slice, or with -1 takes it off.
func (b *bare) addSlice(slice *resourcev1.ResourceSlice, n int) {
	if slice == nil || slice.Spec.Driver != v1alpha1.Driver || slice.Spec.NodeName == nil || len(slice.Spec.Devices) == 0 {
		return
	}
	if b.slices == nil {
		b.slices = map[string]int{}
	}
	b.without = nil
	if b.slices[*slice.Spec.NodeName] += n; b.slices[*slice.Spec.NodeName] == 0 {
		delete(b.slices, *slice.Spec.NodeName)
	}
}

// Bare are the nodes without GPUs; all reports whether every node is one. The caller must not change the set.
func (e *Engine) Bare() (names map[string]bool, all bool) {
	b := &e.bare
	if b.without == nil {
		b.without = map[string]bool{}
		for name := range b.nodes {
			if b.slices[name] == 0 {
				b.without[name] = true
			}
		}
	}
	return b.without, len(b.without) == len(b.nodes)
}

// Host finds a node for a pod without claims: the first in the order of the policy that lets the pod, where it takes least
// from pods that want GPUs. among are the nodes on which the pod may be, nil is all. first tells that the pod was not planned
// before.
func (e *Engine) Host(pod *corev1.Pod, among []string, first bool, lets func(node string) bool) (node string, ok bool) {
	asked, err := demand.Of(pod, nil, e.ledger)
	if err != nil {
		return "", false
	}
	inv := e.ledger.Inventory()
	if first {
		inv.ObservePod(asked.Pod())
	}
	choices, err := inv.PodChoices(asked.Pod(), e.positions(inv, among))
	if err != nil {
		return "", false
	}
	for {
		place, ok := choices.Next()
		if !ok {
			return "", false
		}
		if lets(place.Name) {
			return place.Name, true
		}
	}
}
