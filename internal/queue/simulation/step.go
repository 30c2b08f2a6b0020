package simulation

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/queue/reclaim"
	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// Pass lets time go on, so that who arrives now is known to have come now.
func (c *Cluster) Pass(now time.Time) { c.now = now }

// Step lets time go on, ends pods whose grace is over, and starts all that can start.
func (c *Cluster) Step(now time.Time) {
	c.Pass(now)
	changing := c.changing()
	for _, id := range changing {
		c.bury(c.work[id])
	}
	for _, id := range changing {
		c.arriveAt(c.work[id])
	}
	refused := map[string]bool{}
	for c.startNext(refused) {
	}
}

// changing are the workloads that end or wait for others to end, in order.
func (c *Cluster) changing() (ids []string) {
	for id, w := range c.work {
		if len(w.ending) > 0 || w.goes != nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// bury frees what pods hold whose grace is over.
func (c *Cluster) bury(w *work) {
	w.ending = slices.DeleteFunc(w.ending, func(m member) bool {
		over := !m.until.After(c.now)
		if over {
			c.held = nil
			c.Inventory.Release(m.assignment)
		}
		return over
	})
}

// arriveAt gives a demander the devices that are kept for it, once those who had them have ended.
func (c *Cluster) arriveAt(w *work) {
	if w.goes == nil {
		return
	}
	for id := range w.awaits {
		if other := c.work[id]; other != nil && len(other.ending) > 0 {
			return
		}
	}
	goes := w.goes
	c.drop(w)
	if !c.reserve(w, goes) {
		c.Book.Hold(w.ID, nil)
	}
}

// reserve gives a workload its places, all or none.
func (c *Cluster) reserve(w *work, places []alloc.Assignment) bool {
	c.held = nil
	for _, a := range places {
		if c.Inventory.Reserve(a) != nil {
			for _, m := range w.members {
				c.Inventory.Unreserve(m.assignment)
			}
			w.members = nil
			return false
		}
		w.members = append(w.members, member{assignment: a})
	}
	w.start = c.now
	if c.Started != nil {
		c.Started(w.ID)
	}
	return true
}

// startNext starts the first that can start, or ends others for it. It reports false where nobody can. Lines that are refused
// are noted.
func (c *Cluster) startNext(refused map[string]bool) bool {
	for _, id := range slices.Collect(c.Book.Order()) { // trying changes the book for a moment
		w := c.work[id]
		if len(w.ending) > 0 || refused[w.Line] {
			continue
		}
		if c.place(w) || c.takeBack(w) {
			return true
		}
		if w.Line != "" {
			refused[w.Line] = true
		}
	}
	return false
}

func (w *Workload) gang(pods int) (gang.Gang, []gang.Member) {
	g := gang.Gang{Namespace: "simulation", Name: w.ID, Size: pods, Minimum: w.Minimum, ShareGPUs: true}
	members := make([]gang.Member, pods)
	for i := range members {
		members[i] = gang.Member{Key: fmt.Sprintf("%s-%04d", w.ID, i), Pod: w.Pod}
	}
	return g, members
}

// place starts a workload where it fits: as many of its pods as its queue allows.
func (c *Cluster) place(w *work) bool {
	pods := w.Size
	if c.Book.Check(w.ID, w.charges(pods)) != nil {
		pods = w.Minimum
	}
	if c.Book.Check(w.ID, w.charges(pods)) != nil {
		return false
	}
	g, members := w.gang(pods)
	plan, refusal := gang.Place(c.Inventory, g, members, nil)
	if refusal != nil || c.Book.Start(w.ID, w.holds(at(plan.Placements))) != nil {
		return false
	}
	if !c.reserve(w, places(plan.Placements)) {
		c.Book.Hold(w.ID, nil)
		return false
	}
	return true
}

func places(placements []gang.Placement) (all []alloc.Assignment) {
	for i := range placements {
		all = append(all, placements[i].Assignment)
	}
	return all
}

// at are members of a workload that are placed so.
func at(placements []gang.Placement) (all []member) {
	for i := range placements {
		all = append(all, member{assignment: placements[i].Assignment})
	}
	return all
}

// takeBack ends others for a workload, if it may, and keeps the devices for it.
func (c *Cluster) takeBack(w *work) bool {
	if r := c.Book.Check(w.ID, w.charges(w.Minimum)); r != nil && r.Bound != queue.BoundLimit && r.Bound != queue.BoundLending {
		return false
	}
	tree := c.Book.Tree()
	g, members := w.gang(w.Minimum)
	d := &reclaim.Demander{ID: w.ID, Queue: c.home(w), Quota: w.Quota, Priority: w.Priority, Gang: g, Members: members, Charge: tree.Vector(w.charges(w.Minimum))}
	candidates := c.candidates()
	plan, refusal := reclaim.Find(c.Inventory, c.Book, d, candidates, reclaim.Options{Now: c.now})
	if refusal != nil || len(plan.Victims)+len(plan.Awaits) == 0 {
		return false
	}
	if c.Planned != nil && len(plan.Victims) > 0 {
		c.Planned(d, candidates, plan)
	}
	if !c.agree(w, plan, candidates) {
		return false
	}
	c.held = nil
	w.goes, w.awaits, w.epoch, w.tookFrom = places(plan.Placements), map[string]bool{}, c.epoch, nil
	for _, position := range plan.Awaits {
		w.awaits[owner(candidates[position].ID)] = true
	}
	for _, v := range plan.Victims {
		c.evict(w, &candidates[v.Candidate], v)
	}
	for _, a := range w.goes {
		c.Inventory.SetAside(a)
	}
	return true
}

// agree counts a plan in the book: what ends, and then what comes. It changes nothing where the book refuses.
func (c *Cluster) agree(w *work, plan *reclaim.Plan, candidates []reclaim.Candidate) bool {
	hold := func(after bool) {
		for _, v := range plan.Victims {
			other := c.work[candidates[v.Candidate].ID]
			left := slices.Clone(other.members)
			if after {
				for _, j := range slices.Backward(v.Members) {
					left = slices.Delete(left, j, j+1)
				}
			}
			c.Book.Hold(other.ID, other.holds(left))
		}
	}
	hold(true)
	if c.Book.Start(w.ID, w.holds(at(plan.Placements))) != nil {
		hold(false)
		return false
	}
	return true
}

// evict lets pods of a victim end within its queue's grace.
func (c *Cluster) evict(w *work, candidate *reclaim.Candidate, v reclaim.Victim) {
	c.held = nil
	other := c.work[candidate.ID]
	until := c.now.Add(c.Book.Tree().Grace(candidate.Queue))
	for _, j := range slices.Backward(v.Members) {
		m := other.members[j]
		m.until = until
		other.ending = append(other.ending, m)
		other.members = slices.Delete(other.members, j, j+1)
	}
	c.Evicted += len(v.Members)
	if c.Gave != nil {
		c.Gave(other.ID, len(v.Members))
	}
	w.awaits[other.ID] = true
	if v.Rule == reclaim.RuleEntitlement {
		w.tookFrom = append(w.tookFrom, other.Queue)
	}
}

// endingMark ends the ID of the candidate that has the pods of a workload that are ending.
const endingMark = "/ending"

func owner(id string) string {
	if n := len(id) - len(endingMark); n > 0 && id[n:] == endingMark {
		return id[:n]
	}
	return id
}

// candidates are all that hold devices.
func (c *Cluster) candidates() []reclaim.Candidate {
	if c.held == nil {
		c.held = c.holders()
	}
	return c.held
}

// holders makes the candidates.
func (c *Cluster) holders() (all []reclaim.Candidate) {
	for _, id := range slices.Sorted(maps.Keys(c.work)) {
		w := c.work[id]
		of := func(name string, members []member, ending bool) {
			candidate := reclaim.Candidate{
				ID: name, Queue: c.home(w), Quota: w.Quota, Priority: w.Priority, Start: w.start, Minimum: w.Minimum, Ending: ending,
			}
			for i, m := range members {
				one := c.Book.Tree().Vector(w.holds([]member{m}))
				candidate.Members = append(candidate.Members, reclaim.Member{Key: fmt.Sprintf("%s-%04d", name, i), Assignments: []alloc.Assignment{m.assignment}, Charge: one})
			}
			for _, name := range w.tookFrom {
				if n, ok := c.Book.Tree().Find(name); ok && w.epoch == c.epoch {
					candidate.TookFrom = append(candidate.TookFrom, n)
				}
			}
			if len(members) > 0 {
				all = append(all, candidate)
			}
		}
		of(id, w.members, false)
		of(id+endingMark, w.ending, true)
	}
	return all
}

// home is the queue in which a workload is.
func (c *Cluster) home(w *work) queue.Node {
	if n, ok := c.Book.Tree().Find(w.Queue); ok {
		return n
	}
	return queue.Outside
}
