package ledger

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
)

// podView is what is read of a pod that has not ended. The zero value stands for one that has, or is gone.
type podView struct {
	namespace, name, node string
	cpu                   int64
	memory                uint64
	// request and assignment are the annotations; of a pod without a node nothing was assigned. models and prefer are what
	// the pod says of GPUs beside its request.
	request, assignment, models, prefer string
}

// pod is one that has a node, or that waits and asks for a share.
type pod struct {
	uid    types.UID
	view   podView
	shares []share
	// counted is what the inventory counts for it.
	counted alloc.Assignment
}

// share is what a pod has by the name of one of its shares.
type share struct {
	name string
	gpus []alloc.Share
}

// viewOfPod reads a pod.
func viewOfPod(object *corev1.Pod) (v podView) {
	if object == nil || object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed {
		return podView{}
	}
	v = podView{namespace: object.Namespace, name: object.Name, node: object.Spec.NodeName, request: object.Annotations[v1alpha1.RequestAnnotation]}
	if v.node == "" && v.request == "" {
		return podView{}
	}
	cpu, memory := demand.Host(object)
	v.cpu, v.memory = bounded(cpu), min(memory, mostAmount)
	v.models, v.prefer = object.Annotations[v1alpha1.ModelsAnnotation], object.Annotations[v1alpha1.PreferAnnotation]
	if v.node != "" {
		v.assignment = object.Annotations[v1alpha1.AssignmentAnnotation]
	}
	return v
}

func (l *Ledger) setPod(uid types.UID, view podView) {
	p := l.pods[uid]
	if view.node != "" || view == (podView{}) {
		l.Undo(uid)
	}
	switch {
	case p == nil && view == (podView{}) || p != nil && p.view == view:
		return
	case p == nil:
		p = &pod{uid: uid}
		l.pods[uid] = p
		l.observe(view)
	}
	l.leave(p)
	if view == (podView{}) {
		delete(l.pods, uid)
		l.drop(p, true)
		return
	}
	before := p.view
	p.view = view
	if before.node != view.node || before.request != view.request || before.assignment != view.assignment {
		p.shares = sharesOf(uid, view)
	}
	l.enter(p)
	l.count(p)
}

// leave takes a pod from its node, but for what it has of GPUs.
func (l *Ledger) leave(p *pod) {
	if p.view.node == "" {
		return
	}
	n := l.node(p.view.node)
	n.cpu -= p.view.cpu
	n.memory -= p.view.memory
	delete(n.holders, p.uid)
	l.touch(n.name, hostIsStale)
}

// enter puts a pod on its node.
func (l *Ledger) enter(p *pod) {
	if p.view.node == "" {
		return
	}
	n := l.node(p.view.node)
	n.cpu += p.view.cpu
	n.memory += p.view.memory
	if len(p.shares) > 0 {
		n.holders[p.uid] = p
	}
	l.touch(n.name, hostIsStale)
}

// count has the inventory count what a pod has of GPUs.
func (l *Ledger) count(p *pod) {
	var after alloc.Assignment
	if p.view.node != "" && len(p.shares) > 0 {
		after = l.node(p.view.node).assignment(p.shares)
	}
	if sameAssignment(&p.counted, &after) {
		return
	}
	l.drop(p, false)
	if p.counted = after; len(after.Shares) > 0 {
		l.inv.Adopt(after)
	}
}

// drop ends what the inventory counts for a pod. ended tells that the pod is no more.
func (l *Ledger) drop(p *pod, ended bool) {
	switch {
	case len(p.counted.Shares) == 0:
	case ended:
		l.inv.Release(p.counted)
	default:
		l.inv.Unreserve(p.counted)
	}
	p.counted = alloc.Assignment{}
}

func sameAssignment(a, b *alloc.Assignment) bool {
	return a.Name == b.Name && slices.Equal(a.Shares, b.Shares)
}

// sharesOf are what a pod has on its node by its annotations. What the node's agent would refuse it does not have.
func sharesOf(uid types.UID, view podView) []share {
	if view.node == "" || view.request == "" || view.assignment == "" {
		return nil
	}
	request, err := v1alpha1.ParsePodRequest(view.request)
	if err != nil {
		return nil
	}
	given, err := v1alpha1.ParsePodAssignment(view.assignment)
	if err != nil || given.Answers(string(uid), &request) != nil {
		return nil
	}
	return assigned(&given)
}

// assigned are the shares of an assignment.
func assigned(given *v1alpha1.PodAssignment) (shares []share) {
	for i := range given.Shares {
		s := &given.Shares[i]
		one := share{name: s.Name}
		for _, g := range s.GPUs {
			taken := alloc.Share{UUID: g.UUID, Limit: min(g.Memory, mostAmount), Whole: s.Whole}
			if !s.Whole {
				taken.Cores = s.Config.Guaranteed(g.Cores)
			}
			one.gpus = append(one.gpus, taken)
		}
		shares = append(shares, one)
	}
	return shares
}

// assignment is what the inventory counts on a node for shares. A whole GPU counts with all that it has.
func (n *node) assignment(shares []share) alloc.Assignment {
	a := alloc.Assignment{Node: -1, Name: n.name}
	for i := range shares {
		for _, s := range shares[i].gpus {
			a.Shares = append(a.Shares, n.full(s))
		}
	}
	return a
}

// full is a share with all that its GPU has, if it has the whole of it.
func (n *node) full(s alloc.Share) alloc.Share {
	if s.Whole {
		s.Cores = v1alpha1.MaxCores
		if all := n.capacity(s.UUID); all > 0 {
			s.Limit = all
		}
	}
	return s
}
