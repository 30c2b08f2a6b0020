package queue

import (
	"fmt"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Bound is what keeps a workload from starting.
type Bound string

// The bounds.
const (
	BoundUnknown   Bound = "unknown"   // no such workload
	BoundBlocked   Bound = "blocked"   // the queue has a fault
	BoundLimit     Bound = "limit"     // the queue's limit
	BoundGuarantee Bound = "guarantee" // the queue's guarantee, for guaranteed quota
	BoundNothing   Bound = "nothing"   // guaranteed quota where nothing is guaranteed
	BoundLending   Bound = "lending"   // what is idle is guaranteed to others, and they do not lend it
)

// Refusal says why a workload does not start.
type Refusal struct {
	Bound Bound
	// Queue is the one whose bound it is.
	Queue     string
	Dimension Dimension
	// Used is what is used there, Asked what would come, and Most what there may be.
	Used, Asked, Most int64
	text              string
}

// Error implements error.
func (r *Refusal) Error() string {
	used, asked, most := r.Dimension.Format(r.Used), r.Dimension.Format(r.Asked), r.Dimension.Format(r.Most)
	are := "are"
	if r.Dimension.one(r.Asked) {
		are = "is"
	}
	switch r.Bound {
	case BoundLimit:
		return fmt.Sprintf("queue %s is limited to %s %s: it uses %s, and %s more %s asked for", r.Queue, most, r.Dimension.of(r.Most), used, asked, are)
	case BoundGuarantee:
		return fmt.Sprintf("queue %s has %s %s guaranteed: its pods with guaranteed quota use %s, and %s more %s asked for",
			r.Queue, most, r.Dimension.of(r.Most), used, asked, are)
	case BoundLending:
		if r.Queue == "" {
			return fmt.Sprintf("%s more %s %s asked for outside all queues, and only %s may be lent", asked, r.Dimension.of(r.Asked), are, most)
		}
		return fmt.Sprintf("%s more %s than queue %s has guaranteed %s asked for, and only %s may be lent", asked, r.Dimension.of(r.Asked), r.Queue, are, most)
	}
	return r.text
}

// Check says why a workload may not hold what is given; nil lets it. Only what would come in addition is judged, and only in
// dimensions that a queue on its path names.
func (b *Book) Check(id string, held []Charge) *Refusal {
	e := b.entries[id]
	if e == nil {
		return &Refusal{Bound: BoundUnknown, text: fmt.Sprintf("there is no workload %s", id)}
	}
	if e.Quota == v1alpha1.QuotaOpportunistic {
		return nil
	}
	n := &b.tree.nodes[e.node]
	if n.blocked != "" {
		return &Refusal{Bound: BoundBlocked, Queue: n.name, text: n.blocked}
	}
	holds := b.tree.Vector(held)
	more := make(Vector, len(holds))
	for d := range holds {
		if more[d] = holds[d] - e.holds[d]; more[d] <= 0 {
			continue
		}
		if r := b.bounded(e, d, more[d]); r != nil {
			return r
		}
	}
	if e.Quota == v1alpha1.QuotaGuaranteed && total(held) > total(e.held) && !b.tree.Covers(e.node, more) {
		whose := "outside all queues nothing is guaranteed"
		if n.name != "" {
			whose = fmt.Sprintf("queue %s has nothing guaranteed of such GPUs", n.name)
		}
		return &Refusal{Bound: BoundNothing, Queue: n.name, text: whose + ": only pods with borrowing quota start there"}
	}
	return nil
}

// total is how many thousandths of GPUs charges are, of whatever model.
func total(charges []Charge) (sum int64) {
	for i := range charges {
		sum += charges[i].GPUs
	}
	return sum
}

// Covers reports whether something of an amount is of a dimension that a queue or one above it names.
func (t *Tree) Covers(n Node, amount Vector) bool {
	for d := range amount {
		if amount[d] > 0 && t.Names(n, d) {
			return true
		}
	}
	return false
}

// bounded says which bound keeps a workload from more in a dimension.
func (b *Book) bounded(e *entry, d int, more int64) *Refusal {
	refusal := func(bound Bound, n Node, used, most int64) *Refusal {
		return &Refusal{Bound: bound, Queue: b.tree.nodes[n].name, Dimension: b.tree.dimensions[d], Used: used, Asked: more, Most: most}
	}
	named := false
	for n := e.node; n > Top; n = b.tree.nodes[n].parent {
		q := &b.tree.nodes[n].quotas[d]
		if !q.named {
			continue
		}
		named = true
		if used := b.used[d][n]; used+more > q.limit {
			return refusal(BoundLimit, n, used, q.limit)
		}
		if used, most := b.assured[d][n], b.shares[d].guaranteed[n]; e.Quota == v1alpha1.QuotaGuaranteed && used+more > most {
			return refusal(BoundGuarantee, n, used, most)
		}
	}
	if !named && e.node != Outside {
		return nil
	}
	if excess := b.excess(e.node, d, more); excess > 0 {
		return refusal(BoundLending, e.node, b.used[d][e.node], max(0, more-excess))
	}
	return nil
}

// excess is how much of what a queue would use in addition is guaranteed to others that do not lend it. It is 0 within a
// guarantee on the queue's path.
func (b *Book) excess(n Node, d int, more int64) int64 {
	for ; n > Top; n = b.tree.nodes[n].parent {
		q := &b.tree.nodes[n].quotas[d]
		occupied, guaranteed := b.occupied[d][n], b.shares[d].guaranteed[n]
		if occupied+more <= guaranteed {
			return 0
		}
		more += withheld(guaranteed, occupied+more, q.lends) - withheld(guaranteed, occupied, q.lends)
	}
	return b.occupied[d][Top] + more - max(b.shares[d].guaranteed[Top], b.occupied[d][Top])
}
