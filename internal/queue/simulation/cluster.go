// Package simulation is a cluster with queues in simulated time: workloads arrive, start, are ended for others and come back.
// It joins the allocator, the queues and the search for victims as a scheduler does. It is pure.
package simulation

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/queue/reclaim"
)

// Workload is a pod, or a gang of equal pods.
type Workload struct {
	ID, Queue string
	Quota     v1alpha1.Quota
	Priority  int32
	Pod       alloc.Pod
	// Charge is what one pod asks.
	Charge queue.Charge
	// Held is what a pod holds where it is; without it, that is what it asks.
	Held func(alloc.Assignment) queue.Charge
	// Size is how many pods there are, Minimum how many must run together.
	Size, Minimum int
	// Line is the same of workloads that ask the same in the same queue: once one of them cannot start, the others are not
	// tried in that step. Those without one are all tried.
	Line string
}

// Cluster is the state of a simulation.
type Cluster struct {
	Book      *queue.Book
	Inventory *alloc.Inventory
	// Planned is called with each plan by which somebody ends, before anybody does.
	Planned func(d *reclaim.Demander, candidates []reclaim.Candidate, p *reclaim.Plan)
	// Started is called for a workload that has begun to run, Gave for one of which so many pods were told to end for others.
	Started func(id string)
	Gave    func(id string, pods int)
	// Evicted counts pods that ended for others.
	Evicted int

	now   time.Time
	work  map[string]*work
	nodes map[string]alloc.Node
	// epoch counts changes of demand, quotas and capacity.
	epoch int
	specs []queue.Spec
	// held are the candidates of this moment, nil where they are to be found out.
	held []reclaim.Candidate
}

// work is a workload in the cluster.
type work struct {
	Workload
	since, start time.Time
	members      []member
	// ending are pods that end at a time, and hold what they hold until then.
	ending []member
	// goes is where it goes once all of awaits have ended, nil for one that does not wait for that.
	goes   []alloc.Assignment
	awaits map[string]bool
	// tookFrom are queues whose pods ended for it in an epoch.
	tookFrom []string
	epoch    int
}

type member struct {
	assignment alloc.Assignment
	until      time.Time
}

// New makes a cluster of nodes. A policy of the allocator places.
func New(nodes []alloc.Node, policy alloc.Policy, now time.Time) (*Cluster, error) {
	c := &Cluster{Book: queue.NewBook(), now: now, work: map[string]*work{}, nodes: map[string]alloc.Node{}}
	for _, n := range nodes {
		c.nodes[n.Name] = copied(n)
	}
	var err error
	if c.Inventory, err = alloc.NewInventory(nodes, policy); err != nil {
		return nil, fmt.Errorf("make a cluster: %w", err)
	}
	c.measure()
	return c, nil
}

func copied(n alloc.Node) alloc.Node {
	n.GPUs = slices.Clone(n.GPUs)
	return n
}

// change notes that demand, quotas or capacity have changed.
func (c *Cluster) change() {
	c.epoch++
	c.held = nil
}

// measure tells the book of all GPUs that are there.
func (c *Cluster) measure() {
	by := map[string]queue.Charge{}
	for node := range c.Inventory.Len() {
		n := c.Inventory.Node(node)
		for i := range n.GPUs {
			g := &n.GPUs[i]
			sum := by[g.Model]
			by[g.Model] = queue.Charge{Models: []string{g.Model}, GPUs: sum.GPUs + 1000, Cores: sum.Cores + 100, Memory: sum.Memory + int64(g.Capacity>>20)}
		}
	}
	var all []queue.Charge
	for _, model := range slices.Sorted(maps.Keys(by)) {
		all = append(all, by[model])
	}
	c.Book.SetCapacity(all)
	c.change()
}

// SetQueues replaces the queues.
func (c *Cluster) SetQueues(specs []queue.Spec) {
	c.specs = slices.Clone(specs)
	c.Book.SetQueues(specs)
	c.change()
}

// Arrive enters a workload, which begins to wait.
func (c *Cluster) Arrive(w Workload) {
	c.work[w.ID] = &work{Workload: w, since: c.now}
	c.enter(c.work[w.ID])
	c.change()
}

func (c *Cluster) enter(w *work) {
	c.Book.Arrive(queue.Workload{ID: w.ID, Queue: w.Queue, Quota: w.Quota, Priority: w.Priority, Since: w.since, Asks: w.charges(w.Minimum)})
}

func (w *Workload) charges(pods int) (all []queue.Charge) {
	if pods == 0 {
		return nil
	}
	one := w.Charge
	n := int64(pods)
	return []queue.Charge{{Models: one.Models, GPUs: n * one.GPUs, Cores: n * one.Cores, Memory: n * one.Memory}}
}

// holds is what pods of a workload hold.
func (w *work) holds(members []member) (all []queue.Charge) {
	if w.Held == nil {
		return w.charges(len(members))
	}
	for _, m := range members {
		all = append(all, w.Held(m.assignment))
	}
	return all
}

// End ends a workload, whatever it does.
func (c *Cluster) End(id string) {
	w := c.work[id]
	if w == nil {
		return
	}
	c.drop(w)
	for _, m := range append(w.members, w.ending...) {
		c.Inventory.Release(m.assignment)
	}
	c.Book.End(id)
	delete(c.work, id)
	c.change()
}

// drop gives up what was kept for a workload.
func (c *Cluster) drop(w *work) {
	for _, a := range w.goes {
		c.Inventory.PutBack(a)
	}
	w.goes, w.awaits = nil, nil
}

// Lose takes a node away with all that runs there; Return brings it back.
func (c *Cluster) Lose(name string) {
	if c.Inventory.Remove(name) != nil {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(c.work)) {
		c.loseMembers(c.work[id], name)
	}
	c.measure()
}

func (c *Cluster) loseMembers(w *work, node string) {
	there := func(m member) bool { return m.assignment.Name == node }
	for _, m := range append(slices.Clone(w.members), w.ending...) {
		if there(m) {
			c.Inventory.Release(m.assignment)
		}
	}
	before := len(w.members)
	w.members, w.ending = slices.DeleteFunc(w.members, there), slices.DeleteFunc(w.ending, there)
	if slices.ContainsFunc(w.goes, func(a alloc.Assignment) bool { return a.Name == node }) {
		c.drop(w)
		c.Book.Hold(w.ID, nil)
	}
	if len(w.members) == before {
		return
	}
	if len(w.members) < w.Minimum {
		for _, m := range w.members {
			c.Inventory.Release(m.assignment)
		}
		w.members = nil
	}
	c.Book.Hold(w.ID, w.holds(w.members))
}

// Return brings a node back.
func (c *Cluster) Return(name string) {
	n, known := c.nodes[name]
	if _, there := c.Inventory.Position(name); there || !known {
		return
	}
	if c.Inventory.Put(copied(n)) == nil {
		c.measure()
	}
}

// Restart forgets what a scheduler has only in memory: what is kept for demanders, and the book. Pods that were to end do.
func (c *Cluster) Restart() {
	c.Book = queue.NewBook()
	c.Book.SetQueues(c.specs)
	for _, id := range slices.Sorted(maps.Keys(c.work)) {
		w := c.work[id]
		c.drop(w)
		c.enter(w)
		c.Book.Hold(id, w.holds(w.members))
	}
	c.measure()
}

// Running is how many pods of a workload run, without those that are ending.
func (c *Cluster) Running(id string) int {
	if w := c.work[id]; w != nil {
		return len(w.members)
	}
	return 0
}

// Next is when the next grace is over, the zero time if nobody is ending.
func (c *Cluster) Next() (next time.Time) {
	for _, w := range c.work {
		for _, m := range w.ending {
			if next.IsZero() || m.until.Before(next) {
				next = m.until
			}
		}
	}
	return next
}

// IDs are those of all workloads, in order.
func (c *Cluster) IDs() []string { return slices.Sorted(maps.Keys(c.work)) }
