package workload

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/queue/reclaim"
)

// overdue is how long after the end of its grace a pod that is being deleted still counts as one that ends.
const overdue = 30 * time.Second

// took is from which queues a workload took something back, and what these wanted before. own is what the workload's queue wanted.
type took struct {
	epoch int
	from  map[string]queue.Vector
	own   queue.Vector
}

// View tells of a cluster what a set does not know.
type View struct {
	Now time.Time
	// Held is what the inventory holds for a claim.
	Held func(claim string) []alloc.Assignment
	// Budgets are positions in [reclaim.Options.Budgets] of the budgets that protect a pod.
	Budgets func(pod *corev1.Pod) []int
}

// Candidates are workloads whose pods may be ended for others, and those that are ending already. pods has the members of each, in
// their order; it has none for claims whose pods have gone. Workloads whose pods share claims are one candidate. Those are left out that
// have claims which are not written yet.
func (s *Set) Candidates(view View) (all []reclaim.Candidate, pods [][]*corev1.Pod) {
	s.Settle()
	together := s.sharers()
	for _, id := range slices.Sorted(maps.Keys(s.works)) {
		w := s.works[id]
		if ids := together[id]; len(ids) > 0 {
			if c, members, ok := s.shared(ids, view); ok && ids[0] == id {
				all, pods = append(all, c), append(pods, members)
			}
			continue
		}
		if c := s.claims[w.claim]; c != nil && !c.Others && !c.Flies && !c.Out { // its pods have gone, and whoever leads clears it
			m := reclaim.Member{Key: claimMark + w.claim, Assignments: view.Held(w.claim), Charge: s.Book.Tree().Vector(c.Charges)}
			all, pods = append(all, reclaim.Candidate{ID: id, Ending: true, Queue: w.node, Quota: w.quota, Members: []reclaim.Member{m}}), append(pods, nil)
			continue
		}
		stay, end := reclaim.Candidate{ID: id, Minimum: 1}, reclaim.Candidate{ID: id + endingMark, Ending: true}
		if w.spoken == nil || !s.gather(w, view, &stay, &end) {
			continue
		}
		for _, c := range []*reclaim.Candidate{&stay, &end} {
			if len(c.Members) == 0 {
				continue
			}
			c.Queue, c.Quota, c.Priority, c.TookFrom = w.node, w.quota, w.priority, s.tookFrom(w)
			all, pods = append(all, *c), append(pods, w.podsOf(c.Members))
		}
	}
	return all, pods
}

// claimMark begins the key of a member that is a claim of pods that have gone.
const claimMark = "claim "

// AwaitedClaims are the claims that a member of a candidate has.
func (s *Set) AwaitedClaims(member string) []string {
	if key, ok := strings.CutPrefix(member, claimMark); ok {
		return []string{key}
	}
	return s.Claims(types.UID(member))
}

// endingMark ends the ID of the candidate that has the members of a workload that are ending.
const endingMark = "/ending"

// gather sorts members into those that stay and those that are ending. It reports false where some of what they have is not written.
func (s *Set) gather(w *work, view View, stay, end *reclaim.Candidate) bool {
	tree := s.Book.Tree()
	if w.gang != "" {
		_, stay.Minimum, _ = s.gangs.Gang(w.spoken)
	}
	for _, p := range w.sorted() {
		if len(p.claims) == 0 {
			continue
		}
		m := p.member(view)
		charges, leaves, flies := s.gives(p, &m, view)
		switch {
		case flies:
			return false
		case len(charges) == 0: // it has nothing to give
			continue
		}
		if p.Spec.NodeName == "" || slices.ContainsFunc(m.Assignments, func(a alloc.Assignment) bool { return a.Name != p.Spec.NodeName }) {
			return false
		}
		m.Charge = tree.Vector(charges)
		if leaves { // its pod stays, with its processors and memory
			m.CPU, m.HostMemory = 0, 0
			end.Members = append(end.Members, m)
			continue
		}
		switch p.phase(view.Now, tree.Grace(w.node)) {
		case phaseEnds:
			end.Members = append(end.Members, m)
		case phaseStays:
			if stay.Members = append(stay.Members, m); len(stay.Members) == 1 || m.Start.Before(stay.Start) {
				stay.Start = m.Start
			}
		}
	}
	return true
}

// gives adds to a member what its pod's claims have of GPUs, and returns what that counts. leaves tells that it is being suspended, and
// flies that some of it is not written yet.
func (s *Set) gives(p *pod, m *reclaim.Member, view View) (charges []queue.Charge, leaves, flies bool) {
	leaves = p.sleeps
	for _, key := range slices.Sorted(maps.Keys(p.claims)) {
		c := s.claims[key]
		flies, leaves = flies || c.Flies, leaves || c.Away
		if c.Out {
			continue
		}
		if c.Back.After(m.Start) {
			m.Start = c.Back
		}
		charges = append(charges, c.Charges...)
		m.Assignments = append(m.Assignments, view.Held(key)...)
	}
	return charges, leaves, flies
}

// phase is what a pod that has something does.
type phase int

const (
	phaseStays   phase = iota
	phaseEnds          // what it has comes free
	phaseOverdue       // it should have ended, and may never
)

// phase is that of a pod whose queue gives a grace. One that its owner deleted with a longer grace stays: others would wait for it as
// long as the owner likes. It can be ended for them within the grace of its queue.
func (p *pod) phase(now time.Time, grace time.Duration) phase {
	at := p.DeletionTimestamp
	switch {
	case at != nil && now.After(at.Add(overdue)):
		return phaseOverdue
	case p.released || at != nil && !at.After(now.Add(grace+overdue)):
		return phaseEnds
	}
	return phaseStays
}

// tookFrom are queues from which a workload took, as long as neither they nor its own queue want more than then.
func (s *Set) tookFrom(w *work) (from []queue.Node) {
	if w.took.epoch != s.epoch || s.wantsMore(w.node, w.took.own) {
		return nil
	}
	for name, before := range w.took.from {
		if n, there := s.Book.Tree().Find(name); there && !s.wantsMore(n, before) {
			from = append(from, n)
		}
	}
	slices.Sort(from)
	return from
}

// wantsMore reports whether a queue wants more than before.
func (s *Set) wantsMore(n queue.Node, before queue.Vector) bool {
	for d, wanted := range s.Book.Demand(n) {
		if d >= len(before) || wanted > before[d] {
			return true
		}
	}
	return false
}

// Demander is a workload for which others may end, without gang and members.
func (s *Set) Demander(id string, charges []queue.Charge) reclaim.Demander {
	s.Settle()
	d := reclaim.Demander{ID: id, Charge: s.Book.Tree().Vector(charges), Queue: queue.Outside, Quota: v1alpha1.QuotaBorrowing}
	if w := s.works[id]; w != nil {
		d.Quota, d.Priority, d.Queue = w.quota, w.priority, w.node
	}
	return d
}

// MayTake reports whether anybody could be a victim for a demander, as far as quotas and priorities tell. It costs little.
func (s *Set) MayTake(d *reclaim.Demander) bool {
	s.Settle()
	over := map[queue.Node]bool{}
	for id, w := range s.works {
		switch {
		case !w.holds || id == d.ID || w.spoken == nil:
		case w.node == d.Queue && w.priority < d.Priority && (w.quota == v1alpha1.QuotaOpportunistic) == (d.Quota == v1alpha1.QuotaOpportunistic):
			return true
		case d.Quota == v1alpha1.QuotaOpportunistic:
		case w.quota == v1alpha1.QuotaOpportunistic:
			return true
		case w.node != d.Queue:
			is, known := over[w.node]
			if !known {
				is = s.over(d, w.node)
				over[w.node] = is
			}
			if is {
				return true
			}
		}
	}
	return false
}

// over reports whether a queue is above its entitlement where its path and the demander's part, in what the demander asks.
func (s *Set) over(d *reclaim.Demander, n queue.Node) bool {
	_, part := s.Book.Tree().Parting(d.Queue, n)
	for i, asked := range d.Charge {
		if asked > 0 && s.Book.Used(part, i) > s.Book.Entitled(part, i) {
			return true
		}
	}
	return false
}

// Agree counts a plan: pods that end for a workload do not count any more, and what is kept for it does. from are pods that end
// because their queues are above their entitlements. Where the workload's queue does not let it have so much even then, nothing has changed.
func (s *Set) Agree(id string, kept []queue.Charge, ends, from []types.UID) *queue.Refusal {
	w := s.works[id]
	if w == nil {
		return nil
	}
	s.Settle()
	wanted, own := map[string]queue.Vector{}, s.Book.Demand(w.node)
	for _, uid := range from {
		if p := s.pods[uid]; p != nil && s.on {
			n := s.works[p.work].node
			wanted[s.Book.Tree().Name(n)] = s.Book.Demand(n)
		}
	}
	for _, uid := range ends {
		s.release(uid, true)
	}
	if refusal := s.Check(id, kept); refusal != nil {
		for _, uid := range ends {
			s.release(uid, false)
		}
		return refusal
	}
	if w.took.epoch != s.epoch || w.took.from == nil {
		w.took = took{epoch: s.epoch, from: map[string]queue.Vector{}}
	}
	for name, before := range wanted {
		w.took.from[name] = before
	}
	w.took.own = own
	w.kept = merged(kept)
	s.dirty[id] = true
	s.Turns.Remove(id)
	return nil
}

func (s *Set) release(uid types.UID, is bool) {
	if p := s.pods[uid]; p != nil {
		p.released, p.sleeps = is, false
		s.dirty[p.work] = true
	}
}

// Return takes back that a pod ends for others: it counts again.
func (s *Set) Return(uid types.UID) {
	if p := s.pods[uid]; p != nil && p.released {
		p.released, p.sleeps = false, false
		s.dirty[p.work] = true
	}
}

// Drop ends what is kept for a workload.
func (s *Set) Drop(id string) {
	if w := s.works[id]; w != nil && len(w.kept) > 0 {
		w.kept = nil
		s.dirty[id] = true
	}
}

// Claims are those that a pod has.
func (s *Set) Claims(uid types.UID) []string {
	if p := s.pods[uid]; p != nil {
		return slices.Sorted(maps.Keys(p.claims))
	}
	return nil
}
