package workload

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
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
	var have []*pod
	var by [3][]*pod // by phase
	for i, id := range ids {
		w := s.works[id]
		if i == 0 || w.priority < c.Priority {
			c.Priority = w.priority
		}
		if i == 0 || less(w.quota, c.Quota) {
			c.Queue, c.Quota = w.node, w.quota
		}
		for _, p := range w.sorted() {
			switch flies := slices.ContainsFunc(slices.Collect(maps.Keys(p.claims)), func(key string) bool { return s.claims[key].Flies }); {
			case p.Spec.NodeName == "" && len(p.claims) == 0: // it waits
				continue
			case p.Spec.NodeName == "" || flies:
				return c, nil, false
			}
			at := p.phase(view.Now, s.Book.Tree().Grace(w.node))
			have, by[at] = append(have, p), append(by[at], p)
		}
	}
	members := by[phaseStays]
	if c.Ending = len(members) == 0; c.Ending {
		members = by[phaseEnds]
	}
	for i, p := range members {
		c.Members, pods = append(c.Members, p.member(view)), append(pods, p.Pod)
		if start := c.Members[i].Start; i == 0 || start.Before(c.Start) {
			c.Start = start
		}
	}
	c.Minimum = len(c.Members)
	return c, pods, s.divide(have, members, c.Members, view)
}

// divide gives what pods have to the first of some members on its node. It reports whether there is something.
func (s *Set) divide(have, of []*pod, members []reclaim.Member, view View) bool {
	charges, found := make([][]queue.Charge, len(members)), false
	for _, p := range have {
		for _, key := range slices.Sorted(maps.Keys(p.claims)) {
			if s.claims[key].Out {
				continue
			}
			held := view.Held(key)
			i := slices.IndexFunc(of, func(m *pod) bool { return len(held) > 0 && m.Spec.NodeName == held[0].Name })
			if i < 0 {
				continue // it is of a pod that ends by itself, or has no devices that are there
			}
			members[i].Assignments, charges[i], found = append(members[i].Assignments, held...), append(charges[i], s.claims[key].Charges...), true
		}
	}
	for i := range members {
		members[i].Charge = s.Book.Tree().Vector(charges[i])
	}
	return found
}

// less reports whether a quota protects less than another.
func less(a, b v1alpha1.Quota) bool {
	order := []v1alpha1.Quota{v1alpha1.QuotaOpportunistic, v1alpha1.QuotaBorrowing, v1alpha1.QuotaGuaranteed}
	return slices.Index(order, a) < slices.Index(order, b)
}

// member is a pod as a search for victims sees it, without what its claims have.
func (p *pod) member(view View) reclaim.Member {
	if !p.counted {
		p.cpu, p.memory = demand.Host(p.Pod)
		p.counted = true
	}
	return reclaim.Member{Key: string(p.UID), CPU: p.cpu, HostMemory: p.memory, Budgets: view.Budgets(p.Pod), Start: began(p.Pod)}
}

// podsOf are the pods of members of a workload.
func (w *work) podsOf(members []reclaim.Member) (all []*corev1.Pod) {
	for i := range members {
		all = append(all, w.members[types.UID(members[i].Key)].Pod)
	}
	return all
}
