package queue

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// none is no limit.
const none = math.MaxInt64

// Node is the position of a queue in a [Tree].
type Node int

// The first two nodes. Every tree has them.
const (
	// Top has all roots as its parts.
	Top Node = 0
	// Outside is where pods are that have no queue. It has no guarantee and no limit.
	Outside Node = 1
)

// Tree is queues and their parts. It does not change.
type Tree struct {
	nodes      []node // parents before their parts
	named      map[string]Node
	namespaces map[string]Node
	users      map[string][]string // by queue: the namespaces that it lists
	dimensions []Dimension
	conditions []Condition
}

// node is a queue. One with parts has one more for its own pods, which has what its parent has left.
type node struct {
	name           string
	own            bool
	parent         Node
	parts          []Node // by name, the own one first
	depth          int
	quotas         []quota // by dimension
	grace, minimum time.Duration
	// blocked says why nothing starts here or below.
	blocked string
}

// quota is what a queue has in one dimension. One that is not named has no guarantee of its own and no limit.
type quota struct {
	named                            bool
	guaranteed, limit, lends, weight int64
}

// NewTree makes a tree of queues. Faults become conditions.
func NewTree(specs []Spec) *Tree {
	t := &Tree{named: map[string]Node{}, namespaces: map[string]Node{}, users: map[string][]string{}}
	specs = slices.Clone(specs)
	slices.SortStableFunc(specs, func(a, b Spec) int { return strings.Compare(a.Name, b.Name) })
	specs = slices.CompactFunc(specs, func(a, b Spec) bool { return a.Name == b.Name })
	specs = slices.DeleteFunc(specs, func(s Spec) bool { return s.Name == "" })
	t.dimensions = dimensionsOf(specs)
	blank := t.blank(none)
	t.nodes = append(t.nodes, node{parent: -1, quotas: blank, grace: v1alpha1.DefaultGrace})
	t.add(node{quotas: blank, grace: v1alpha1.DefaultGrace}, Top)
	faults := t.faults(specs)
	parts := map[string][]int{}
	for i := range specs {
		parent := specs[i].Parent
		if f, ok := faults[specs[i].Name]; ok && f.Type != ConditionInvalid {
			parent = ""
		}
		parts[parent] = append(parts[parent], i)
	}
	t.grow(specs, faults, parts, "", Top)
	t.name(specs)
	return t
}

// dimensionsOf are all that are named, in order.
func dimensionsOf(specs []Spec) (dimensions []Dimension) {
	seen := map[Dimension]bool{}
	for i := range specs {
		for j := range specs[i].Resources {
			r := &specs[i].Resources[j]
			if d := (Dimension{r.Model, r.UnitOrDefault()}); !seen[d] {
				seen[d] = true
				dimensions = append(dimensions, d)
			}
		}
	}
	slices.SortFunc(dimensions, func(a, b Dimension) int {
		return cmp.Or(strings.Compare(a.Model, b.Model), strings.Compare(string(a.Unit), string(b.Unit)))
	})
	return dimensions
}

// faults are those for which a queue lets nothing start.
func (t *Tree) faults(specs []Spec) map[string]Condition {
	faults := map[string]Condition{}
	parent, state := map[string]string{}, map[string]int{}
	for i := range specs {
		parent[specs[i].Name] = specs[i].Parent
	}
	for i := range specs {
		if circle := circleFrom(specs[i].Name, parent, state); circle != nil {
			for _, name := range circle {
				faults[name] = Condition{name, ConditionCycle, "it is its own ancestor: " + strings.Join(append(circle[:len(circle):len(circle)], circle[0]), " → ")}
			}
		}
	}
	for i := range specs {
		s := &specs[i]
		_, there := parent[s.Parent]
		if s.Fault != "" {
			faults[s.Name] = Condition{s.Name, ConditionInvalid, s.Fault}
			continue
		}
		if err := s.Validate(s.Name); err != nil && faults[s.Name].Type == "" {
			faults[s.Name] = Condition{s.Name, ConditionInvalid, strings.ReplaceAll(err.Error(), "\n", "; ")}
		}
		if s.Parent != "" && !there && faults[s.Name].Type != ConditionCycle {
			faults[s.Name] = Condition{s.Name, ConditionNoParent, fmt.Sprintf("there is no queue %s", s.Parent)}
		}
	}
	return faults
}

// circleFrom is the circle to which the ancestors of a queue lead, if it was not found before. In state, 2 is a queue whose
// ancestors are known, and 1 one on the way.
func circleFrom(at string, parent map[string]string, state map[string]int) (circle []string) {
	var way []string
	for at != "" && state[at] == 0 {
		if _, there := parent[at]; !there {
			break
		}
		state[at] = 1
		way = append(way, at)
		at = parent[at]
	}
	if at != "" && state[at] == 1 {
		circle = way[slices.Index(way, at):]
	}
	for _, name := range way {
		state[name] = 2
	}
	return circle
}

// grow adds the parts of a queue, and theirs.
func (t *Tree) grow(specs []Spec, faults map[string]Condition, parts map[string][]int, name string, at Node) {
	for _, i := range parts[name] {
		s := &specs[i]
		up := &t.nodes[at]
		n := node{name: s.Name, grace: up.grace, minimum: up.minimum, blocked: up.blocked}
		if s.Grace != nil {
			n.grace = max(0, time.Duration(*s.Grace))
		}
		if s.MinimumRunTime != nil {
			n.minimum = max(0, time.Duration(*s.MinimumRunTime))
		}
		if fault, ok := faults[s.Name]; ok {
			t.conditions = append(t.conditions, fault)
			n.blocked = fmt.Sprintf("queue %s: %s", s.Name, fault.Message)
		}
		if n.blocked != "" {
			n.quotas = t.blank(none)
		} else {
			n.quotas = t.quotas(s)
		}
		child := t.add(n, at)
		t.named[s.Name] = child
		if len(parts[s.Name]) == 0 {
			continue
		}
		own := node{name: s.Name, own: true, quotas: t.blank(none), grace: n.grace, minimum: n.minimum, blocked: n.blocked}
		t.named[s.Name] = t.add(own, child)
		t.grow(specs, faults, parts, s.Name, child)
	}
}

func (t *Tree) add(n node, parent Node) Node {
	n.parent, n.depth = parent, t.nodes[parent].depth+1
	at := Node(len(t.nodes))
	t.nodes = append(t.nodes, n)
	t.nodes[parent].parts = append(t.nodes[parent].parts, at)
	return at
}

func (t *Tree) blank(limit int64) []quota {
	quotas := make([]quota, len(t.dimensions))
	for i := range quotas {
		quotas[i] = quota{limit: limit, lends: none}
	}
	return quotas
}

// quotas are those of a valid specification, by dimension.
func (t *Tree) quotas(s *Spec) []quota {
	quotas := t.blank(none)
	for i := range s.Resources {
		r := &s.Resources[i]
		at := slices.Index(t.dimensions, Dimension{r.Model, r.UnitOrDefault()})
		q := &quotas[at]
		unit := r.UnitOrDefault()
		in := func(a v1alpha1.Amount) int64 {
			n, _ := a.In(unit) // of a valid specification there is no error
			return n
		}
		q.named, q.guaranteed, q.weight = true, in(r.Guaranteed), in(r.Guaranteed)
		if !r.Limit.IsZero() {
			q.limit = in(r.Limit)
		}
		if !r.LendingLimit.IsZero() {
			q.lends = in(r.LendingLimit)
		}
		if r.Weight != nil {
			q.weight = unit.Weigh(*r.Weight)
		}
	}
	return quotas
}

// name gives namespaces to queues.
func (t *Tree) name(specs []Spec) {
	for i := range specs {
		s := &specs[i]
		t.users[s.Name] = s.Namespaces
		for _, ns := range s.Namespaces {
			if first, taken := t.namespaces[ns]; taken && t.nodes[first].name != s.Name {
				t.conditions = append(t.conditions, Condition{s.Name, ConditionNamespace, fmt.Sprintf("namespace %s is queue %s's unless its pods name another", ns, t.nodes[first].name)})
			} else if !taken {
				t.namespaces[ns] = t.named[s.Name]
			}
		}
	}
}

// Find is where the pods of a queue are.
func (t *Tree) Find(name string) (Node, bool) {
	n, ok := t.named[name]
	return n, ok
}

// Of is the queue of the pods of a namespace that name none; [Outside] where there is none.
func (t *Tree) Of(namespace string) Node {
	for _, ns := range []string{namespace, v1alpha1.OtherNamespaces} {
		if n, ok := t.namespaces[ns]; ok {
			return n
		}
	}
	return Outside
}

// Conditions are what shows of the queues whatever there is and whoever asks.
func (t *Tree) Conditions() []Condition { return slices.Clone(t.conditions) }

// Namespaces are those that a queue lists. Nobody changes them.
func (t *Tree) Namespaces(name string) []string { return t.users[name] }

// Admits reports whether the pods of a namespace may use a queue: it lists the namespace, or all that no queue lists.
func (t *Tree) Admits(name, namespace string) bool {
	if _, listed := t.namespaces[namespace]; !listed {
		namespace = v1alpha1.OtherNamespaces
	}
	return slices.Contains(t.users[name], namespace)
}

// Name is that of a queue; empty for [Top] and [Outside].
func (t *Tree) Name(n Node) string { return t.nodes[n].name }

// Dimensions are those that a queue names, in the order of vectors.
func (t *Tree) Dimensions() []Dimension { return t.dimensions }

// Grace is how long a victim of a queue has to end, and MinimumRunTime how long it has run at least.
func (t *Tree) Grace(n Node) time.Duration { return t.nodes[n].grace }

// MinimumRunTime is how long a pod of a queue runs before it can be a victim.
func (t *Tree) MinimumRunTime(n Node) time.Duration { return t.nodes[n].minimum }

// Parent is that of which a queue is a part; it is negative of [Top].
func (t *Tree) Parent(n Node) Node { return t.nodes[n].parent }

// Depth is how many queues are above one.
func (t *Tree) Depth(n Node) int { return t.nodes[n].depth }

// Limit is the most that a queue uses in a dimension, the greatest number where there is none.
func (t *Tree) Limit(n Node, dimension int) int64 { return t.nodes[n].quotas[dimension].limit }

// Parting is where the paths of two queues with pods part: the part of their lowest common ancestor on each path. Both are a
// where a is b.
func (t *Tree) Parting(a, b Node) (ofA, ofB Node) {
	for t.nodes[a].depth > t.nodes[b].depth {
		a = t.nodes[a].parent
	}
	for t.nodes[b].depth > t.nodes[a].depth {
		b = t.nodes[b].parent
	}
	for a != b && t.nodes[a].parent != t.nodes[b].parent {
		a, b = t.nodes[a].parent, t.nodes[b].parent
	}
	return a, b
}

// Vector sums charges by dimension.
func (t *Tree) Vector(charges []Charge) Vector {
	v := make(Vector, len(t.dimensions))
	for i := range t.dimensions {
		d := &t.dimensions[i]
		for j := range charges {
			if d.counts(&charges[j]) {
				v[i] += charges[j].amount(d.Unit)
			}
		}
	}
	return v
}
