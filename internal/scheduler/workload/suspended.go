package workload

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/internal/queue"
)

// Sleep notes of a pod that was released for others by [Set.Agree] that it does not end: it is suspended, and asks for what it has.
func (s *Set) Sleep(uid types.UID, is bool) {
	if p := s.pods[uid]; p != nil && p.released && p.sleeps != is {
		p.sleeps = is
		s.dirty[p.work] = true
	}
}

// Leaves reports whether a pod has something that is ordered out of its GPUs.
func (s *Set) Leaves(uid types.UID) bool {
	p := s.pods[uid]
	return p != nil && (p.sleeps || slices.ContainsFunc(slices.Collect(maps.Keys(p.claims)), func(key string) bool { return s.claims[key].Away }))
}

// Sleepers are workloads of which something is suspended for nobody any more: what they were suspended for has come or gone.
func (s *Set) Sleepers() (ids []string) {
	found := map[string]bool{}
	for key := range s.away {
		if work := s.claims[key].work; !found[work] && len(s.Asleep(work)) > 0 {
			found[work] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// Asleep are the claims of a workload's pods that are ordered out of their GPUs; none where a plan counts on one of them, or where its
// pods have ended.
func (s *Set) Asleep(id string) (keys []string) {
	w := s.works[id]
	if w == nil {
		return nil
	}
	for _, p := range w.members {
		if p.released {
			return nil
		}
		if p.DeletionTimestamp != nil {
			continue
		}
		for key := range p.claims {
			if s.claims[key].Away {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// Back is what a workload takes once everything of it that is suspended is back.
func (s *Set) Back(id string) []queue.Charge {
	if w := s.works[id]; w != nil {
		return merged(s.asleep(w))
	}
	return nil
}

// Suspended counts the pods of each queue, by its name, that are out of their GPUs. Those outside all queues are under "".
func (s *Set) Suspended() map[string]int {
	count, seen := map[string]int{}, map[types.UID]bool{}
	for key := range s.away {
		for _, uid := range s.claims[key].Pods {
			if p := s.pods[uid]; p != nil && !seen[uid] && p.DeletionTimestamp == nil && s.out(p) {
				seen[uid] = true
				count[s.QueueOf(uid)]++
			}
		}
	}
	return count
}

// out reports whether a pod has something, and nothing of that is on a GPU.
func (s *Set) out(p *pod) bool {
	for key := range p.claims {
		if !s.claims[key].Out {
			return false
		}
	}
	return len(p.claims) > 0
}

// Object is a pod as it is known, nil for none.
func (s *Set) Object(uid types.UID) *corev1.Pod {
	if p := s.pods[uid]; p != nil {
		return p.Pod
	}
	return nil
}

// Spoken is the member of a workload that speaks for it, nil for none.
func (s *Set) Spoken(id string) *corev1.Pod {
	if w := s.works[id]; w != nil && w.first() != nil {
		return w.first().Pod
	}
	return nil
}
