package queue

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// users are queues that have namespaces.
func users(name, parent string, namespaces ...string) Spec {
	return Spec{Name: name, QueueSpec: v1alpha1.QueueSpec{Parent: parent, Namespaces: namespaces}}
}

func TestReviewOfWriting(t *testing.T) {
	research, vision := named("research", "", share(8000, nil, nil, nil)), named("vision", "research", share(4000, nil, nil, nil))
	all := []Spec{research, vision, named("speech", "research", share(4000, nil, nil, nil))}
	memory := v1alpha1.QueueSpec{Resources: []v1alpha1.QueueShare{{Model: "H100", Unit: v1alpha1.UnitMemory, Guaranteed: v1alpha1.Written("80Gi")}}}
	const over = "the parts of queue research would have 9 GPUs guaranteed (speech 4, vision 5), and research itself has 8"
	for _, c := range []struct {
		name             string
		all              []Spec
		after            Spec
		faults, warnings string
	}{
		{"the first", nil, research, "", ""},
		{"a part", []Spec{research}, vision, "", ""},
		{"unchanged", all, vision, "", ""},
		{"every fault of its own", nil, Spec{Name: "a", QueueSpec: v1alpha1.QueueSpec{Parent: "B", Namespaces: []string{"x", "x"}, Resources: []v1alpha1.QueueShare{{Guaranteed: v1alpha1.Written("-1")}}}},
			`queue a: parent "B" is no name of a queue; queue a: resource 0: guaranteed -1: it is negative: give 0 or more; queue a: namespace x is named twice`, "there is no queue B"},
		{"its own parent", nil, named("a", "a", share(0, nil, nil, nil)), "it cannot be its own parent", ""},
		{"a circle", all, named("research", "vision", share(8000, nil, nil, nil)), "queue research: it would be its own ancestor: research → vision → research", ""},
		{"a circle that was there", []Spec{named("a", "b", memory), named("b", "a", memory)}, users("a", "b"), "", "it would be its own ancestor: a → b → a"},
		{"below a circle", []Spec{named("a", "b", memory), named("b", "a", memory)}, users("c", "a"), "", "queue a above it is its own ancestor"},
		{"a parent to come", nil, vision, "", "queue vision: there is no queue research: until there is"},
		{"more than the parent has", all, named("vision", "research", share(5000, nil, nil, nil)), over, ""},
		{"less for the parent", all, named("research", "", share(6000, nil, nil, nil)),
			"the parts of queue research would have 8 GPUs guaranteed (speech 4, vision 4), and research itself has 6", ""},
		{"a parent that comes later", all[1:], named("research", "", share(6000, nil, nil, nil)), "and research itself has 6", ""},
		{"a parent with a limit alone", all[1:], Spec{Name: "research", QueueSpec: v1alpha1.QueueSpec{Resources: []v1alpha1.QueueShare{{Limit: v1alpha1.Written("9")}}}}, "and research itself has 0", ""},
		{"a parent that names something else", all[1:], named("research", "", memory), "", ""},
		{"through one that names nothing", []Spec{research, users("lab", "research"), named("vision", "lab", share(4000, nil, nil, nil))},
			named("speech", "lab", share(5000, nil, nil, nil)), "the parts of queue research would have 9 GPUs guaranteed (lab 9), and research itself has 8", ""},
		{"too much before", []Spec{research, named("vision", "research", share(9000, nil, nil, nil)), users("speech", "research")},
			named("vision", "research", share(8500, nil, nil, nil)), "", "would have 8.5 GPUs guaranteed (vision 8.5), and research itself has 8"},
		{"still more", []Spec{research, named("vision", "research", share(9000, nil, nil, nil))}, named("vision", "research", share(9500, nil, nil, nil)), "would have 9.5 GPUs", ""},
		{"memory of a model", []Spec{named("a", "", memory), named("b", "a", memory)}, named("c", "a", memory),
			"the parts of queue a would have 160Gi of GPU memory (H100) guaranteed (b 80Gi, c 80Gi), and a itself has 80Gi", ""},
		{"from one parent to another", append(all, named("other", "", share(2000, nil, nil, nil))), named("vision", "other", share(4000, nil, nil, nil)),
			"the parts of queue other would have 4 GPUs guaranteed (vision 4), and other itself has 2", ""},
		{"another's namespace", []Spec{users("a", "", "x", "y")}, users("b", "", "y", "z"), "queue b: namespace y is queue a's", ""},
		{"its parent's namespace", []Spec{users("a", "", "x")}, users("b", "a", "x"), "queue b: namespace x is queue a's", ""},
		{"a namespace that it had", []Spec{users("a", "", "x"), users("b", "", "x")}, users("b", "", "x", "z"), "", "queue b: namespace x is queue a's"},
		{"all other namespaces", []Spec{users("a", "", "*")}, users("b", "", "x"), "", ""},
		{"all others twice", []Spec{users("a", "", "*")}, users("b", "", "*"), "queue b: the namespaces that no queue lists (*) are queue a's", ""},
	} {
		r := ReviewWrite(c.all, c.after)
		for what, pair := range map[string][2]string{"faults": {strings.Join(r.Faults, "; "), c.faults}, "warnings": {strings.Join(r.Warnings, "; "), c.warnings}} {
			if got, want := pair[0], pair[1]; !strings.Contains(got, want) || want == "" && got != "" {
				t.Errorf("%s: %s %q, want %q", c.name, what, got, want)
			}
		}
	}
}

func TestReviewOfDeleting(t *testing.T) {
	all := []Spec{users("a", ""), users("c", "a"), users("b", "a"), users("d", "b")}
	r := ReviewDelete(all, "a", 3, 2)
	text := strings.Join(r.Warnings, "\n")
	for _, want := range []string{"queue a: its parts (b, c) have no guarantee", "3 of its pods run: they go on", "2 of its pods wait"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nlacks %q", text, want)
		}
	}
	if r := ReviewDelete(all, "d", 0, 0); len(r.Warnings)+len(r.Faults) > 0 {
		t.Errorf("%+v", r)
	}
}

func TestNamespacesOfQueues(t *testing.T) {
	tree := NewTree([]Spec{users("a", "", "x"), users("b", "", "x", "y"), users("rest", "", "*"), users("top", "")})
	for namespace, want := range map[string]string{"x": "a", "y": "b", "z": "rest"} {
		if got := tree.Name(tree.Of(namespace)); got != want {
			t.Errorf("the pods of %s are in %q, want %q", namespace, got, want)
		}
	}
	for _, c := range []struct {
		queue, namespace string
		want             bool
	}{
		{"a", "x", true}, {"b", "x", true}, {"rest", "x", false}, {"a", "y", false}, {"rest", "z", true}, {"a", "z", false}, {"top", "x", false}, {"none", "z", false},
	} {
		if got := tree.Admits(c.queue, c.namespace); got != c.want {
			t.Errorf("%s admits %s: %v", c.queue, c.namespace, got)
		}
	}
	if got := NewTree(nil).Of("x"); got != Outside {
		t.Errorf("%v", got)
	}
}
