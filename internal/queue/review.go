package queue

import (
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Review is what is wrong with a queue that somebody is about to write, or to delete: one line each.
type Review struct {
	// Faults are reasons to refuse it. What was wrong before and does not get worse is none.
	Faults []string
	// Warnings are what whoever writes it should know.
	Warnings []string
}

// ReviewWrite judges a queue against all others. All has the queue as it was before, if it was there.
func ReviewWrite(all []Spec, after Spec) Review {
	var r Review
	if err := after.Validate(after.Name); err != nil {
		for line := range strings.Lines(err.Error()) {
			line = strings.TrimPrefix(strings.TrimSpace(line), v1alpha1.ErrRequest.Error()+": ")
			r.Faults = append(r.Faults, line)
		}
	}
	before, others := Spec{Name: after.Name}, make([]Spec, 0, len(all))
	for i := range all {
		if all[i].Name == after.Name {
			before = all[i]
		} else {
			others = append(others, all[i])
		}
	}
	r.parents(others, &before, &after)
	r.namespaces(others, &before, &after)
	if len(r.Faults) == 0 {
		r.sums(append(slices.Clone(others), before), append(slices.Clone(others), after), after.Name)
	}
	return r
}

// parents judges of which queues one is to be a part.
func (r *Review) parents(others []Spec, before, after *Spec) {
	if after.Parent == "" {
		return
	}
	parent := map[string]string{after.Name: after.Parent}
	for i := range others {
		parent[others[i].Name] = others[i].Parent
	}
	way := []string{after.Name}
	for at := after.Parent; at != "" && at != after.Name; at = parent[at] {
		if slices.Contains(way, at) {
			r.warn(after.Name, "queue %s above it is its own ancestor: until that ends, nothing is guaranteed here and nothing starts", at)
			return
		}
		way = append(way, at)
		if parent[at] == after.Name {
			if text := "it would be its own ancestor: " + strings.Join(append(way, after.Name), " → "); before.Parent == after.Parent {
				r.warn(after.Name, "%s", text)
			} else {
				r.fault(after.Name, "%s", text)
			}
			return
		}
	}
	if after.Parent == after.Name {
		r.fault(after.Name, "it cannot be its own parent")
	} else if _, there := parent[after.Parent]; !there {
		r.warn(after.Name, "there is no queue %s: until there is, nothing is guaranteed here and nothing starts", after.Parent)
	}
}

// namespaces judges whose namespaces a queue is to have.
func (r *Review) namespaces(others []Spec, before, after *Spec) {
	for _, ns := range after.Namespaces {
		i := slices.IndexFunc(others, func(s Spec) bool { return slices.Contains(s.Namespaces, ns) })
		if i < 0 {
			continue
		}
		text := fmt.Sprintf("namespace %s is queue %s's, and a namespace has one queue: take it out of one of them", ns, others[i].Name)
		if ns == v1alpha1.OtherNamespaces {
			text = fmt.Sprintf("the namespaces that no queue lists (%s) are queue %s's: take it out of one of them", ns, others[i].Name)
		}
		if slices.Contains(before.Namespaces, ns) {
			r.warn(after.Name, "%s", text)
		} else {
			r.fault(after.Name, "%s", text)
		}
	}
}

// sums judges whether queues have as much as is guaranteed to their parts: the queue itself, and those above it.
func (r *Review) sums(before, after []Spec, name string) {
	was, is := NewTree(before), NewTree(after)
	node, ok := is.Find(name)
	if !ok {
		return
	}
	if is.nodes[node].own {
		node = is.nodes[node].parent
	}
	for ; node > Top; node = is.nodes[node].parent {
		if is.nodes[node].blocked != "" {
			continue
		}
		for d := range is.dimensions {
			excess := is.excess(node, d)
			if excess <= 0 {
				continue
			}
			if then := was.excessOf(is.nodes[node].name, is.dimensions[d]); excess > then {
				r.fault(name, "%s", is.tooMuch(node, d))
			} else {
				r.warn(name, "%s", is.tooMuch(node, d))
			}
		}
	}
}

// promised is what is guaranteed to a queue as it is written. One that does not name a dimension has what its parts have.
func (t *Tree) promised(n Node, d int) (sum int64) {
	if q := &t.nodes[n].quotas[d]; q.named {
		return min(q.guaranteed, q.limit)
	}
	for _, part := range t.nodes[n].parts {
		sum += t.promised(part, d)
	}
	return sum
}

// excess is by how much the parts of a queue have more guaranteed than itself, 0 if it has no parts or does not name the
// dimension.
func (t *Tree) excess(n Node, d int) int64 {
	if !t.nodes[n].quotas[d].named || len(t.nodes[n].parts) == 0 {
		return 0
	}
	sum := -t.promised(n, d)
	for _, part := range t.nodes[n].parts {
		sum += t.promised(part, d)
	}
	return sum
}

// excessOf is excess of a queue by its name, and 0 if it is not there or nobody names the dimension.
func (t *Tree) excessOf(name string, dimension Dimension) int64 {
	d := slices.Index(t.dimensions, dimension)
	n, ok := t.Find(name)
	if d < 0 || !ok {
		return 0
	}
	if t.nodes[n].own {
		n = t.nodes[n].parent
	}
	return t.excess(n, d)
}

// tooMuch says which parts have how much of what their parent does not have.
func (t *Tree) tooMuch(n Node, d int) string {
	sum, parts := int64(0), []string(nil)
	for _, part := range t.nodes[n].parts {
		if promised := t.promised(part, d); promised > 0 {
			sum += promised
			parts = append(parts, t.nodes[part].name+" "+t.dimensions[d].Format(promised))
		}
	}
	return fmt.Sprintf("the parts of queue %s would have %s %s guaranteed (%s), and %s itself has %s", t.nodes[n].name,
		t.dimensions[d].Format(sum), t.dimensions[d], strings.Join(parts, ", "), t.nodes[n].name, t.dimensions[d].Format(t.promised(n, d)))
}

func (r *Review) fault(name, format string, args ...any) {
	r.Faults = append(r.Faults, fmt.Sprintf("queue %s: ", name)+fmt.Sprintf(format, args...))
}

func (r *Review) warn(name, format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf("queue %s: ", name)+fmt.Sprintf(format, args...))
}

// ReviewDelete says what becomes of the parts of a queue that is deleted, and of its pods, of which so many run and wait.
func ReviewDelete(all []Spec, name string, running, waiting int) Review {
	var r Review
	var parts []string
	for i := range all {
		if all[i].Parent == name && all[i].Name != name {
			parts = append(parts, all[i].Name)
		}
	}
	slices.Sort(parts)
	if len(parts) > 0 {
		r.warn(name, "its parts (%s) have no guarantee and start nothing until they name another parent, or this one is there again", strings.Join(parts, ", "))
	}
	if running > 0 {
		r.warn(name, "%d of its pods run: they go on, in no queue unless another one has their namespace, and are among the first to end when a queue takes back what it is entitled to", running)
	}
	if waiting > 0 {
		r.warn(name, "%d of its pods wait: those that name it wait until it is there again, the others are in no queue unless another one has their namespace", waiting)
	}
	return r
}
