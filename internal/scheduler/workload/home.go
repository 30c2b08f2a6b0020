package workload

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// ErrQueue marks pods whose queue cannot be known, or that may not use it. The text is one line for users.
var ErrQueue = errors.New("no queue")

// queueOf is the queue in which a workload counts: the one that it names, if it is there and lets its namespace, else that of its
// namespace.
func (s *Set) queueOf(w *work) string {
	tree, namespace, name := s.Book.Tree(), w.namespace, ""
	if first := w.first(); first != nil {
		namespace, name = first.Namespace, first.Labels[v1alpha1.QueueLabel]
	}
	if _, there := tree.Find(name); there && tree.Admits(name, namespace) {
		return name
	}
	return tree.Name(tree.Of(namespace))
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

// common is the quota of all members. Members that disagree borrow: they count, and nobody protects others by his label.
func (w *work) common() v1alpha1.Quota {
	var all v1alpha1.Quota
	for _, p := range w.members {
		quota, err := v1alpha1.ParseQuota(p.Labels[v1alpha1.QuotaLabel])
		if err != nil || all != "" && quota != all {
			return v1alpha1.QuotaBorrowing
		}
		all = quota
	}
	return all
}
