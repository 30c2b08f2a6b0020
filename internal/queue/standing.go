package queue

import (
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Standing is where a queue stands in the dimensions that it or a queue above it names; nil where there is no such queue.
func (b *Book) Standing(name string) []v1alpha1.QueueUse {
	n, ok := b.tree.Find(name)
	if !ok {
		return nil
	}
	if b.tree.nodes[n].own {
		n = b.tree.nodes[n].parent
	}
	var all []v1alpha1.QueueUse
	for d := range b.shares {
		if b.tree.Names(n, d) {
			all = append(all, b.standing(n, d))
		}
	}
	return all
}

// Counts is how many workloads of a queue and its parts run and wait.
func (b *Book) Counts(name string) (running, waiting int) {
	n, ok := b.tree.Find(name)
	if !ok {
		return 0, 0
	}
	if b.tree.nodes[n].own {
		n = b.tree.nodes[n].parent
	}
	return b.runningBelow(n), b.many[n]
}

func (b *Book) runningBelow(n Node) int {
	sum := b.running[n]
	for _, part := range b.tree.nodes[n].parts {
		sum += b.runningBelow(part)
	}
	return sum
}

// Names reports whether a queue or one above it names a dimension.
func (t *Tree) Names(n Node, d int) bool {
	for ; n > Top; n = t.nodes[n].parent {
		if t.nodes[n].quotas[d].named {
			return true
		}
	}
	return false
}

func (b *Book) standing(n Node, d int) v1alpha1.QueueUse {
	s := b.current(d)
	return v1alpha1.QueueUse{
		Model: b.tree.dimensions[d].Model, Unit: b.tree.dimensions[d].Unit,
		Guaranteed: s.guaranteed[n], Entitled: s.entitled[n], Used: b.used[d][n],
		Lent: b.lent(n, d), Borrowed: max(0, b.used[d][n]-s.guaranteed[n]), Demand: b.demanded(n, d),
	}
}

// Demand is what a queue and its parts hold or ask for, by dimension, limits aside.
func (b *Book) Demand(n Node) Vector {
	v := make(Vector, len(b.shares))
	for d := range v {
		v[d] = b.demanded(n, d)
	}
	return v
}

func (b *Book) demanded(n Node, d int) int64 {
	sum := b.demand[d][n]
	for _, part := range b.tree.nodes[n].parts {
		sum += b.demanded(part, d)
	}
	return sum
}

// lent is how much of a queue's guarantee its siblings use: what they use beyond their guarantees and beyond what is
// guaranteed to none, divided among those that have idle guarantees in proportion to these.
func (b *Book) lent(n Node, d int) int64 {
	up := b.tree.nodes[n].parent
	if up < 0 {
		return 0
	}
	s, parts := b.shares[d], b.tree.nodes[up].parts
	idle := make([]int64, len(parts))
	borrowed, free := int64(0), s.guaranteed[up]
	if up != Top {
		free = max(free, b.used[d][up])
	}
	for i, part := range parts {
		used, guaranteed := b.used[d][part], s.guaranteed[part]
		borrowed += max(0, used-guaranteed)
		free -= guaranteed
		idle[i] = min(max(0, guaranteed-used), b.tree.nodes[part].quotas[d].lends)
	}
	return divide(borrowed-max(0, free), idle, idle)[slices.Index(parts, n)]
}

// Conditions are what is to be said of the queues, by name.
func (b *Book) Conditions() []Condition {
	all := slices.Clone(b.tree.conditions)
	capacity := b.Capacity()
	for i := range b.tree.nodes {
		n := &b.tree.nodes[i]
		if n.name == "" || n.own {
			continue
		}
		for d := range b.shares {
			if !n.quotas[d].named {
				continue
			}
			dimension := b.tree.dimensions[d]
			if capacity[d] == 0 && dimension.Model != "" {
				all = append(all, Condition{n.name, ConditionNoGPUs, fmt.Sprintf("no node has GPUs of model %s", dimension.Model)})
			} else if s := b.shares[d]; s.scaled[i] {
				of := "there are " + dimension.Format(s.guaranteed[n.parent])
				if n.parent != Top {
					of = fmt.Sprintf("queue %s has %s", b.tree.nodes[n.parent].name, dimension.Format(s.guaranteed[n.parent]))
				}
				all = append(all, Condition{n.name, ConditionScaled, fmt.Sprintf("%s instead of %s %s are guaranteed in effect: %s for it and its siblings",
					dimension.Format(s.guaranteed[i]), dimension.Format(n.quotas[d].guaranteed), dimension, of)})
			}
		}
	}
	slices.SortStableFunc(all, func(x, y Condition) int { return compareConditions(&x, &y) })
	return all
}
