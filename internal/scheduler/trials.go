package scheduler

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// Trials ask Kubernetes' filters about members of a gang before any of them has a cycle.
type Trials interface {
	// Lets reports whether a node lets a member.
	Lets(pod *corev1.Pod, node string) bool
	// Beside reports whether a node that lets a member does so beside other members that wait: so many of them are about to be
	// on that node, and others calls a function for all that are about to be on nodes.
	Beside(pod *corev1.Pod, node string, here int, others func(func(pod *corev1.Pod, node string))) bool
	// Alike is equal for members that no filter tells apart, and empty for one that is like no other.
	Alike(pod *corev1.Pod) string
	// Why is what a filter said most of members and nodes that have the GPUs, empty where it let all.
	Why() string
}

// neighbours are members of a gang that wait and have places in a plan.
type neighbours struct {
	engine *Engine
	units  map[string]*Unit
	others []gang.Neighbour
}

// count is how many of them are on a node.
func (n neighbours) count(node int) (here int) {
	for i := range n.others {
		if n.others[i].Node == node && n.units[n.others[i].Key] != nil {
			here++
		}
	}
	return here
}

func (n neighbours) all(each func(pod *corev1.Pod, node string)) {
	inv := n.engine.ledger.Inventory()
	for _, other := range n.others {
		if u := n.units[other.Key]; u != nil && other.Node >= 0 {
			each(u.Pod, inv.Node(other.Node).Name)
		}
	}
}

// unplaced is the error of a gang that was refused.
func unplaced(refusal *gang.Refusal, trials Trials) error {
	if trials != nil && refusal.Next == nil {
		if why := trials.Why(); why != "" {
			return fmt.Errorf("%w: %w; nodes have the GPUs for more, and %s", ErrRoom, refusal, why)
		}
	}
	return fmt.Errorf("%w: %w", ErrRoom, refusal)
}
