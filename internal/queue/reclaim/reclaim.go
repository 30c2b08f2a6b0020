// Package reclaim finds whose pods end so that a demander gets what its queue is entitled to. It is pure, and leaves no trace
// in the inventory.
package reclaim

import (
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// Demander is the workload for which others are to end. A single pod is a gang of one.
type Demander struct {
	ID       string
	Queue    queue.Node
	Quota    v1alpha1.Quota
	Priority int32
	Gang     gang.Gang
	Members  []gang.Member
	// Charge is for what must be placed together.
	Charge queue.Vector
}

// Candidate is a workload that runs.
type Candidate struct {
	ID       string
	Queue    queue.Node
	Quota    v1alpha1.Quota
	Priority int32
	// Start is when its first member started.
	Start time.Time
	// Minimum is how many members must stay, or all end. Of a single pod it is 1.
	Minimum int
	Members []Member
	// Ending tells that it is ending already: what it holds comes free without a victim.
	Ending bool
	// TookFrom are queues whose pods ended for it since demand, quotas or capacity changed. They do not take that back.
	TookFrom []queue.Node
	// Outwaited tells that its budgets protect it no more, but from moving: they were waited for long enough.
	Outwaited bool
	// Movable tells that all of its pods may end to start again elsewhere, also where its quota is guaranteed: they have their
	// places before they end. Gang is how they are placed again; a pod alone is a gang of one that shares GPUs.
	Movable bool
	Gang    gang.Gang
}

// Member is a pod that runs.
type Member struct {
	Key string
	// Assignments are what its claims have, as the inventory holds them, all of them on one node.
	Assignments []alloc.Assignment
	// CPU, in thousandths of a processor, and HostMemory, in bytes, are what the pod has of the host beside its assignments.
	CPU        int64
	HostMemory uint64
	Charge     queue.Vector
	// Start is when the pod started: where members end one by one, each has its own minimum run time. Zero is when the candidate did.
	Start time.Time
	// Budgets are positions in [Options.Budgets].
	Budgets []int
	// Again is what the pod asks once it is made again; nil for one that does not move.
	Again *gang.Member
}

// node is where a member is, empty for one that has nothing.
func (m *Member) node() string {
	if len(m.Assignments) == 0 {
		return ""
	}
	return m.Assignments[0].Name
}

// Options bound a search.
type Options struct {
	Now time.Time
	// Budgets are how many pods each disruption budget still lets end.
	Budgets []int
	// Nodes tell labels for a gang's topology; they may be nil.
	Nodes gang.Nodes
	// Moves lets pods move where nobody may end, see [Find].
	Moves bool
	// Steps bounds the work; 0 is [DefaultSteps].
	Steps int
}

// DefaultSteps bounds a search: a step is about a microsecond of a slow core.
const DefaultSteps = 1 << 16

// Rule is why a pod is a victim.
type Rule string

// The rules, in the order in which victims are taken.
const (
	RuleOpportunistic Rule = "opportunistic" // it counts in no queue
	RuleEntitlement   Rule = "entitlement"   // its queue is above its entitlement
	RulePriority      Rule = "priority"      // it is of the demander's queue, with a lower priority
	RuleMove          Rule = "move"          // it is movable, and has a place to come back to; a plan has such victims alone
)

// Victim is a candidate of which members end.
type Victim struct {
	// Candidate is its position, Members are positions in it, all of them if it ends as a whole.
	Candidate int
	Members   []int
	Whole     bool
	Rule      Rule
}

// Plan says who ends and where the demander goes. The devices of the placements are to be kept for it.
type Plan struct {
	Placements []gang.Placement
	Victims    []Victim
	// Moves are where the victims go whose rule is [RuleMove]. These devices are to be kept for them as well.
	Moves []Move
	// Awaits are candidates that are ending already on whose devices the demander or victims go.
	Awaits []int
	Steps  int
}

// Move is where a member of a candidate goes, by their positions.
type Move struct {
	Candidate, Member int
	Assignment        alloc.Assignment
}

// Pods is how many pods end, without and with those of opportunistic quota.
func (p *Plan) Pods(candidates []Candidate) (others, all int) {
	for _, v := range p.Victims {
		all += len(v.Members)
		if candidates[v.Candidate].Quota != v1alpha1.QuotaOpportunistic {
			others += len(v.Members)
		}
	}
	return others, all
}

// Refusal says why nobody ends for a demander.
type Refusal struct {
	// Text is one line. Exhausted tells that the bound of the search ended it.
	Text      string
	Exhausted bool
	Steps     int
}

// Error implements error.
func (r *Refusal) Error() string { return r.Text }

// Find finds the victims for a demander that does not fit. The caller has seen that its quota lets it start but for limits
// that victims of its own queue can meet. Victims are only
//   - opportunistic workloads, for one that is not;
//   - workloads of queues that are above their entitlement where their path and the demander's part, as far as that, while
//     the demander stays within its own on its path; a workload that cannot be divided may take its queue below;
//   - workloads of the demander's queue with a lower priority.
//
// Those with guaranteed quota, before their minimum run time, or beyond a disruption budget are none. Of a gang, members
// above its minimum end one by one, and then all. The demander is placed as a whole before anybody is a victim, and without
// any one of the victims it is not. There are as few victims as a bounded search finds: first of pods that are not
// opportunistic, then of all.
//
// Where nobody can be a victim by these rules, and the demander is within the guarantees on its path, movable workloads are, if
// options let it: as few pods as the search finds, each of which has a place in the same trial. Their minimum run time,
// disruption budgets and [Candidate.TookFrom] hold for that as well. Nobody moves after a search that was ended by its bound.
//
// The inventory must not change meanwhile.
func Find(inv *alloc.Inventory, book *queue.Book, d *Demander, candidates []Candidate, o Options) (*Plan, *Refusal) {
	plan, refusal := newTrial(inv, book, d, candidates, o, false).find()
	if refusal == nil || refusal.Exhausted || !o.Moves {
		return plan, refusal
	}
	if plan := newTrial(inv, book, d, candidates, o, true).move(); plan != nil {
		return plan, nil
	}
	return nil, refusal
}

// find is the search for victims.
func (t *trial) find() (*Plan, *Refusal) {
	defer t.end()
	if t.lawful() && t.fits() {
		return t.plan(), nil
	}
	if !t.any {
		return nil, &Refusal{Text: t.nobody(), Steps: t.steps}
	}
	if !t.possible() {
		return nil, &Refusal{Text: "the demander fits nowhere even if all end that may", Steps: t.steps}
	}
	if t.grow() || t.shrink() {
		t.minimize()
	}
	t.improve()
	if len(t.items) == 0 || !t.lawful() || !t.fits() {
		return nil, &Refusal{Text: "those who may end hold too little in one place", Exhausted: t.steps > t.most, Steps: t.steps}
	}
	return t.plan(), nil
}
