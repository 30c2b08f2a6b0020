package workload

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/queue/reclaim"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
)

// sharers are workloads whose pods share claims, by each of them: what such a claim has comes free only when all have ended.
func (s *Set) sharers() map[string][]string {
	together := map[string][]string{}
	for _, key := range slices.Sorted(maps.Keys(s.claims)) {
		c := s.claims[key]
		if len(c.Pods) < 2 {
			continue
		}
		var all []string
		for _, uid := range c.Pods {
			if p := s.pods[uid]; p != nil {
				all = append(all, append(together[p.work], p.work)...)
			}
		}
		slices.Sort(all)
		all = slices.Compact(all)
		for _, id := range all {
			together[id] = all
		}
	}
	return together
}

// shared is the candidate of workloads that share claims. All of it ends or nothing; it is as protected as the least protected of
// them. It reports false where some of it is not written yet.
func (s *Set) shared(ids []string, view View) (c reclaim.Candidate, pods []*corev1.Pod, ok bool) {
	c = reclaim.Candidate{ID: ids[0], Quota: v1alpha1.QuotaGuaranteed}
	var charges []queue.Charge
	var assignments []alloc.Assignment
	for i, id := range ids {
		w := s.works[id]
		if i == 0 || w.priority < c.Priority {
			c.Priority = w.priority
		}
		if i == 0 || less(w.quota, c.Quota) {
			c.Queue, c.Quota = w.node, w.quota
		}
		for _, p := range w.sorted() {
			for _, key := range slices.Sorted(maps.Keys(p.claims)) {
				if s.claims[key].Flies {
					return c, nil, false
				}
				charges = append(charges, s.claims[key].Charges...)
				assignments = append(assignments, view.Held(key)...)
			}
			if p.ends() {
				continue
			}
			if p.Spec.NodeName == "" {
				return c, nil, false
			}
			c.Members, pods = append(c.Members, p.member(view)), append(pods, p.Pod)
			c.Start = latest(c.Start, began(p.Pod))
		}
	}
	if len(c.Members) == 0 || !onOne(assignments) {
		return c, nil, false
	}
	c.Minimum = len(c.Members)
	c.Members[0].Assignments, c.Members[0].Charge = assignments, s.Book.Tree().Vector(charges)
	for i := range c.Members[1:] {
		c.Members[1+i].Charge = make(queue.Vector, len(c.Members[0].Charge))
	}
	return c, pods, true
}

// less reports whether a quota protects less than another.
func less(a, b v1alpha1.Quota) bool {
	order := []v1alpha1.Quota{v1alpha1.QuotaOpportunistic, v1alpha1.QuotaBorrowing, v1alpha1.QuotaGuaranteed}
	return slices.Index(order, a) < slices.Index(order, b)
}

func onOne(all []alloc.Assignment) bool {
	return len(all) > 0 && !slices.ContainsFunc(all, func(a alloc.Assignment) bool { return a.Name != all[0].Name })
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// member is a pod as a search for victims sees it, without what its claims have.
func (p *pod) member(view View) reclaim.Member {
	if !p.counted {
		p.cpu, p.memory = demand.Host(p.Pod)
		p.counted = true
	}
	return reclaim.Member{Key: string(p.UID), CPU: p.cpu, HostMemory: p.memory, Budgets: view.Budgets(p.Pod)}
}

// podsOf are the pods of members of a workload.
func (w *work) podsOf(members []reclaim.Member) (all []*corev1.Pod) {
	for i := range members {
		all = append(all, w.members[types.UID(members[i].Key)].Pod)
	}
	return all
}
