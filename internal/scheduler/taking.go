package scheduler

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Node is where a pod of the workload goes, empty for one that has no place in the plan.
func (t *Taking) Node(pod *corev1.Pod) string {
	if place := t.place(pod); place != nil {
		return place.Name
	}
	return ""
}

// place is that of a pod, nil for one that has no place in the plan.
func (t *Taking) place(pod *corev1.Pod) *alloc.Assignment {
	for i := range t.placements {
		if t.placements[i].Member.Key == keyOf(pod) {
			return &t.placements[i].Assignment
		}
	}
	return nil
}

// stillOf reports whether the members of the plan wait for places.
func (t *Taking) stillOf(units map[string]*Unit) bool {
	for i := range t.placements {
		u := units[t.placements[i].Member.Key]
		if u == nil || u.Pod.UID != t.pods[t.placements[i].Member.Key].UID || u.Demand.Node() != "" {
			return false
		}
	}
	return len(t.placements) > 0
}

// For is a pod of the workload.
func (t *Taking) For() *corev1.Pod { return t.pods[t.first] }
