package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// recorded waits until all records of shares by slots agree: what the pods' annotations assign, what the agents hold, what these
// tell the extender that they hold, and who uses GPUs. It fails at once if more is used or granted than there is.
func (l *lab) recorded() {
	l.t.Helper()
	l.eventually("assignments, agents and GPUs agree", func() string {
		l.t.Helper()
		return l.slotsDifference()
	})
}

// slotsDifference lists where the records disagree, one line for each place.
func (l *lab) slotsDifference() string {
	assigned, pods, err := l.assigned()
	if err != nil {
		return err.Error()
	}
	var lines []string
	granted, told := holdings{}, holdings{}
	for _, n := range l.Nodes {
		listing, err := l.listing(n)
		if err != nil {
			return err.Error()
		}
		for i := range listing.Tenants {
			for _, s := range listing.Tenants[i].Shares {
				granted.add(n.Name, listing.Tenants[i].Name, s.UUID, part(s.Limit, s.Cores, s.Whole))
			}
		}
		if err := l.told(n, listing, pods, told); err != nil {
			return err.Error()
		}
		lines = append(lines, l.sums(n, listing)...)
		lines = append(lines, l.usage(n, listing)...)
	}
	lines = append(lines, apart("the agent has", assigned, granted)...)
	return strings.Join(append(lines, apart("the agent tells", assigned, told)...), "\n")
}

// part is what a share has of a GPU; a whole one's amounts are not looked at.
func part(memory uint64, cores int, whole bool) amount {
	if whole {
		return amount{whole: true}
	}
	return amount{memory: memory, cores: cores}
}

// apart lists where holdings differ from what pods are assigned.
func apart(who string, assigned, others holdings) (lines []string) {
	all := maps.Clone(assigned)
	maps.Copy(all, others)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if assigned[key] != others[key] {
			lines = append(lines, fmt.Sprintf("%s: %+v is assigned, %s %+v", key, assigned[key], who, others[key]))
		}
	}
	return lines
}

// shareName is an agent's name of a pod's share.
func shareName(pod *corev1.Pod, a *v1alpha1.PodAssignment, share string) string {
	name := pod.Namespace + "/" + pod.Name
	if len(a.Shares) > 1 {
		name += "/" + share
	}
	return name
}

// assigned is what the pods say that have not ended, and these pods by their UIDs.
func (l *lab) assigned() (holdings, map[types.UID]*corev1.Pod, error) {
	list, err := l.Client().CoreV1().Pods(metav1.NamespaceAll).List(l.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	all, pods := holdings{}, map[types.UID]*corev1.Pod{}
	for i := range list.Items {
		p := &list.Items[i]
		text, has := p.Annotations[v1alpha1.AssignmentAnnotation]
		if !has || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		a, err := v1alpha1.ParsePodAssignment(text)
		if err != nil {
			return nil, nil, err
		}
		pods[p.UID] = p
		for _, s := range a.Shares {
			for _, g := range s.GPUs {
				all.add(p.Spec.NodeName, shareName(p, &a, s.Name), g.UUID, part(g.Memory, g.Cores, s.Whole))
			}
		}
	}
	return all, pods, nil
}

// told adds what a node's agent tells the extender that it holds.
func (l *lab) told(n *cluster.Machine, listing *control.Listing, pods map[types.UID]*corev1.Pod, into holdings) error {
	node, err := l.Client().CoreV1().Nodes().Get(l.ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	text, has := node.Annotations[v1alpha1.HeldAnnotation]
	if !has {
		if len(listing.Tenants) > 0 {
			return fmt.Errorf("the agent of %s tells nothing of %d tenants", n.Name, len(listing.Tenants))
		}
		return nil
	}
	held, err := v1alpha1.ParseNodeHeld(text)
	if err != nil {
		return err
	}
	for _, s := range held.Shares {
		p := pods[types.UID(s.Pod)]
		if p == nil {
			return fmt.Errorf("the agent of %s tells of pod %s, which is not there", n.Name, s.Pod)
		}
		a, err := v1alpha1.ParsePodAssignment(p.Annotations[v1alpha1.AssignmentAnnotation])
		if err != nil {
			return err
		}
		for _, g := range s.GPUs {
			into.add(n.Name, shareName(p, &a, s.Name), g.UUID, part(g.Memory, g.Cores, s.Whole))
		}
	}
	return nil
}
