package scheduler

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/queue/reclaim"
	"github.com/divvy-gpu/divvy/internal/scheduler/workload"
)

// search is a search for victims.
type search struct {
	demander reclaim.Demander
	units    map[string]*Unit
	now      time.Time

	engine     *Engine
	filters    Filters
	candidates []reclaim.Candidate
	pods       [][]*corev1.Pod // by candidate
	// mayEnd are the pods on each node that may end or are ending.
	mayEnd   map[string][]*corev1.Pod
	excluded map[string]bool // nodes on which filters have refused a plan
	budgets  budgets
	// again are pods that may move as their owners make them again, by UID.
	again map[types.UID]*corev1.Pod
}

func newSearch(e *Engine, d demander, filters Filters, now time.Time) *search {
	s := &search{engine: e, units: d.units, filters: filters, now: now, excluded: map[string]bool{}}
	var asks []queue.Charge
	for _, u := range d.units {
		e.meet(u.Pod)
		asks = append(asks, workload.Asked(e.ledger.Inventory(), u.Demand.Pod())...)
	}
	first := s.first()
	s.demander = e.queues.set.Demander(e.queues.set.ID(first.UID), asks)
	s.demander.Gang, s.demander.Members = d.gang, d.members
	if policy := first.Spec.PreemptionPolicy; policy != nil && *policy == corev1.PreemptNever {
		s.demander.Priority = lowest // no priority is lower
	}
	return s
}

// lowest is the lowest priority that a pod can have.
const lowest = -1 << 31

// first is the unit's pod that comes first by name.
func (s *search) first() (first *corev1.Pod) {
	for _, u := range s.units {
		if first == nil || u.Pod.Name < first.Name {
			first = u.Pod
		}
	}
	return first
}

// run searches until filters let the demander where a plan puts it.
func (s *search) run() (*reclaim.Plan, error) {
	e := s.engine
	s.budgets.read(e)
	s.candidates, s.pods = e.queues.set.Candidates(workload.View{Now: s.now, Held: e.ledger.Held, Budgets: s.budgets.of})
	s.mayEnd = map[string][]*corev1.Pod{}
	for i := range s.candidates {
		for _, pod := range s.pods[i] {
			s.mayEnd[pod.Spec.NodeName] = append(s.mayEnd[pod.Spec.NodeName], pod)
		}
	}
	inv := e.ledger.Inventory()
	for i := range s.demander.Members {
		m := &s.demander.Members[i]
		if m.Placed == nil {
			pod := s.units[m.Key].Pod
			m.Lets = func(node int) bool {
				name := inv.Node(node).Name
				return !s.excluded[name] && s.filters.Lets(pod, name, s.mayEnd[name])
			}
		}
	}
	s.outwait()
	if e.Moves {
		s.move()
	}
	options := reclaim.Options{Now: s.now, Budgets: s.budgets.left, Nodes: nodeLabels{e}, Moves: e.Moves}
	var plan *reclaim.Plan
	for range mostTries {
		var refusal *reclaim.Refusal
		plan, refusal = reclaim.Find(inv, e.queues.set.Book, &s.demander, s.candidates, options)
		if refusal != nil {
			return nil, refusal
		}
		if s.let(plan) {
			return plan, nil
		}
	}
	return nil, &reclaim.Refusal{Text: "where others may end, nodes do not let it"}
}

// budgetGraces is for how many graces of a queue disruption budgets keep its pods from ending for others that are entitled to what
// they have. Whoever may make pods may write budgets: without an end, they would keep what was lent.
const budgetGraces = 10

// outwait notes candidates of queues that have been waited for so long.
func (s *search) outwait() {
	since, ok := s.engine.queues.takings.since[s.demander.ID]
	if !ok {
		return
	}
	for i := range s.candidates {
		c := &s.candidates[i]
		if c.Queue == s.demander.Queue || s.now.Sub(since) < budgetGraces*s.engine.queues.set.Book.Tree().Grace(c.Queue) {
			continue
		}
		c.Outwaited = true
	}
}

// victim is a member of a candidate that ends by a plan, without a note.
func (s *search) victim(plan *reclaim.Plan, v *reclaim.Victim, member int) Victim {
	set, c, pod := s.engine.queues.set, &s.candidates[v.Candidate], s.pods[v.Candidate][member]
	grace := set.Book.Tree().Grace(c.Queue)
	one := Victim{Pod: pod, Grace: grace, ends: grace, work: c.ID, Rule: v.Rule, Queue: set.QueueOf(pod.UID), Forced: c.Outwaited && v.Rule != reclaim.RuleMove}
	if at := slices.IndexFunc(plan.Moves, func(m reclaim.Move) bool { return m.Candidate == v.Candidate && m.Member == member }); at >= 0 {
		one.Node = plan.Moves[at].Assignment.Name
	}
	return one
}

// let reports whether nodes let the demander once the victims have ended. Those that do not are excluded.
func (s *search) let(plan *reclaim.Plan) bool {
	ended := map[string][]*corev1.Pod{}
	for _, v := range plan.Victims {
		for _, j := range v.Members {
			pod := s.pods[v.Candidate][j]
			ended[pod.Spec.NodeName] = append(ended[pod.Spec.NodeName], pod)
		}
	}
	all := true
	for node, pods := range s.come(plan) {
		if !s.filters.LetsAll(pods, node, append(ended[node], s.ending(node)...)) {
			s.excluded[node] = true
			all = false
		}
	}
	return all
}

// ending are the pods that go from a node by themselves. Those that are being suspended stay there.
func (s *search) ending(node string) (all []*corev1.Pod) {
	for i := range s.candidates {
		if !s.candidates[i].Ending {
			continue
		}
		for _, pod := range s.pods[i] {
			if pod.Spec.NodeName == node && !s.engine.queues.set.Leaves(pod.UID) {
				all = append(all, pod)
			}
		}
	}
	return all
}

// come are the pods that come to each node by a plan.
func (s *search) come(plan *reclaim.Plan) map[string][]*corev1.Pod {
	come := map[string][]*corev1.Pod{}
	for i := range plan.Placements {
		p := &plan.Placements[i]
		come[p.Assignment.Name] = append(come[p.Assignment.Name], s.units[p.Member.Key].Pod)
	}
	for i := range plan.Moves {
		m := &plan.Moves[i]
		come[m.Assignment.Name] = append(come[m.Assignment.Name], s.again[s.pods[m.Candidate][m.Member].UID])
	}
	return come
}

// charges is what assignments count in queues.
func (e *Engine) charges(places []alloc.Assignment) []queue.Charge {
	return workload.Held(e.ledger.Inventory(), places...)
}

// budgets are the disruption budgets of a cluster.
type budgets struct {
	by map[string][]budget // by namespace
	// left is how many pods each lets end. The first lets none end. It is of pods that have several, of which the API for evictions
	// ends none, and of those that did not end when they were told.
	left []int
	// stay are the latter, and until when.
	stay map[types.UID]time.Time
}

// budget is one, by its position.
type budget struct {
	at       int
	selector labels.Selector
}

// read finds out how many pods each budget lets end.
func (b *budgets) read(e *Engine) {
	b.by, b.left, b.stay = map[string][]budget{}, []int{0}, e.queues.takings.stay
	if e.disruptions == nil {
		return
	}
	all, err := e.disruptions.List(labels.Everything())
	if err != nil {
		return // a lister's memory does not fail
	}
	slices.SortFunc(all, func(x, y *policyv1.PodDisruptionBudget) int {
		if x.Namespace+"/"+x.Name < y.Namespace+"/"+y.Name {
			return -1
		}
		return 1
	})
	for _, one := range all {
		selector, err := metav1.LabelSelectorAsSelector(one.Spec.Selector)
		if err != nil {
			continue // it protects nothing
		}
		b.by[one.Namespace] = append(b.by[one.Namespace], budget{len(b.left), selector})
		allowed := int(one.Status.DisruptionsAllowed)
		if one.Status.ObservedGeneration < one.Generation { // the API for evictions ends nobody until the budget was counted anew
			allowed = 0
		}
		b.left = append(b.left, allowed)
	}
}

// of are the positions of the budgets that protect a pod.
func (b *budgets) of(pod *corev1.Pod) (at []int) {
	if _, stays := b.stay[pod.UID]; stays {
		return []int{0}
	}
	for _, one := range b.by[pod.Namespace] {
		if one.selector.Matches(labels.Set(pod.Labels)) {
			at = append(at, one.at)
		}
	}
	if len(at) > 1 {
		return []int{0}
	}
	return at
}
