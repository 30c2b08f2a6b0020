package workload

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/queue"
)

// ErrQueue marks pods whose queue cannot be known, or that may not use it. The text is one line for users.
var ErrQueue = errors.New("no queue")

// queueOf is the queue in which a workload counts.
func (s *Set) queueOf(w *work) string {
	if first := w.first(); first != nil {
		return s.queueFor(first.Pod)
	}
	return s.queueNamed("", w.namespace)
}

// queueFor is the queue in which a pod counts by itself.
func (s *Set) queueFor(object *corev1.Pod) string {
	return s.queueNamed(object.Labels[v1alpha1.QueueLabel], object.Namespace)
}

// queueNamed is a queue by its name, if it is there and lets a namespace, else that of the namespace.
func (s *Set) queueNamed(name, namespace string) string {
	tree := s.Book.Tree()
	if _, there := tree.Find(name); there && tree.Admits(name, namespace) {
		return name
	}
	return tree.Name(tree.Of(namespace))
}

// Home is the queue in which a workload counts, as of the last [Set.Settle].
func (s *Set) Home(id string) queue.Node {
	if w := s.works[id]; w != nil {
		return w.node
	}
	return queue.Outside
}

// MayShare says why a pod may not use a claim that others use: it counts for one of them, and would count otherwise once that one has
// ended. The error is [ErrQueue].
func (s *Set) MayShare(object *corev1.Pod, claim string) error {
	c := s.claims[claim]
	if !s.on || c == nil {
		return nil
	}
	for _, uid := range c.Pods {
		p := s.pods[uid]
		if p == nil || uid == object.UID {
			continue
		}
		if s.queueFor(p.Pod) != s.queueFor(object) || quotaOf(p.Pod) != quotaOf(object) {
			return fmt.Errorf("%w: claim %s is used by pod %s, which has another queue or quota: pods that share a claim have the same", ErrQueue, claim, p.Name)
		}
	}
	return nil
}

// May says why a pod may not be tried, whatever it asks: its queue is not there or not for its namespace, or its gang disagrees. The
// error is [ErrQueue].
func (s *Set) May(object *corev1.Pod) error {
	if !s.on {
		return nil
	}
	tree, name := s.Book.Tree(), object.Labels[v1alpha1.QueueLabel]
	_, there := tree.Find(name)
	switch {
	case name != "" && !there:
		return fmt.Errorf("%w: there is no queue %s", ErrQueue, name)
	case name != "" && !tree.Admits(name, object.Namespace):
		return fmt.Errorf("%w: queue %s is not for pods of namespace %s", ErrQueue, name, object.Namespace)
	}
	if _, err := v1alpha1.ParseQuota(object.Labels[v1alpha1.QuotaLabel]); err != nil {
		return fmt.Errorf("%w: label %s: %w", ErrQueue, v1alpha1.QuotaLabel, err)
	}
	p := s.pods[object.UID]
	if p == nil || s.works[p.work] == nil {
		return nil
	}
	for _, other := range s.works[p.work].members {
		for _, label := range []string{v1alpha1.QueueLabel, v1alpha1.QuotaLabel} {
			if other.Labels[label] != object.Labels[label] && !other.ends() {
				return fmt.Errorf("%w: pods %s and %s of one gang have different labels %s", ErrQueue, min(other.Name, object.Name), max(other.Name, object.Name), label)
			}
		}
	}
	return nil
}

// quotaOf is a pod's quota, empty where it does not read.
func quotaOf(object *corev1.Pod) v1alpha1.Quota {
	quota, _ := v1alpha1.ParseQuota(object.Labels[v1alpha1.QuotaLabel])
	return quota
}

// common is the quota of all members. Members that disagree borrow: they count, and nobody protects others by his label.
func (w *work) common() v1alpha1.Quota {
	var all v1alpha1.Quota
	for _, p := range w.members {
		quota := quotaOf(p.Pod)
		if quota == "" || all != "" && quota != all {
			return v1alpha1.QuotaBorrowing
		}
		all = quota
	}
	return all
}
