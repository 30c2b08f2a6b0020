package scheduler

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/internal/queue"
)

// Due are pods that are to be tried again at a time though nothing has happened: for which nobody could end before, and whose devices
// are kept.
func (e *Engine) Due(now time.Time) (pods []*corev1.Pod) {
	t := &e.queues.takings
	for id := range t.since {
		if e.queues.set.Pod(id) == nil {
			t.forget(id)
		}
	}
	for _, id := range e.wanting(now) {
		if len(pods) == mostTries {
			break
		}
		if pod := e.queues.set.Pod(id); pod != nil {
			pods = append(pods, pod)
		} else {
			t.forget(id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(t.all)) {
		if pod := e.queues.set.Pod(id); pod != nil && t.all[id].ready {
			delete(e.queues.tried, pod.UID)
			pods = append(pods, pod)
		}
	}
	return pods
}

// wanting are the workloads that are due. Queues take turns, and in each of them those come first that have waited longest for it: many
// workloads for which nobody may end delay no other queue's, and all come up.
func (e *Engine) wanting(now time.Time) (ids []string) {
	wants := e.queues.takings.wants
	for id := range wants {
		if !wants[id].at.After(now) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Or(wants[a].at.Compare(wants[b].at), strings.Compare(a, b)) })
	before, turn := map[queue.Node]int{}, map[string]int{}
	for _, id := range ids {
		n := e.queues.set.Home(id)
		turn[id] = before[n]
		before[n]++
	}
	slices.SortStableFunc(ids, func(a, b string) int { return cmp.Compare(turn[a], turn[b]) })
	return ids
}
