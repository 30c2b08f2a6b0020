package extender

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Others are ended for a pod only where its shares have room already.
func TestPreempt(t *testing.T) {
	slot := func(p *corev1.Pod) {
		p.Annotations = nil
		p.Spec.InitContainers = []corev1.Container{{Name: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{v1alpha1.SlotResource: resource.MustParse("1")}}}}
	}
	for name, test := range map[string]struct {
		gibs  uint64
		alter func(*corev1.Pod)
		want  string
	}{
		"room on one":                    {gibs: 10, want: "b"},
		"room on two":                    {gibs: 6, want: "a b"},
		"room nowhere":                   {gibs: 17},
		"no share":                       {alter: func(p *corev1.Pod) { p.Annotations = nil }, want: "a b c nowhere"},
		"no share, of a queue":           {alter: func(p *corev1.Pod) { p.Annotations, p.Labels = nil, map[string]string{v1alpha1.QueueLabel: "x"} }, want: "a b c nowhere"},
		"a slot without a request":       {alter: slot},
		"a gang":                         {gibs: 6, alter: func(p *corev1.Pod) { p.Annotations[v1alpha1.GangAnnotation] = "x" }},
		"a request that cannot be read":  {alter: func(p *corev1.Pod) { p.Annotations[v1alpha1.RequestAnnotation] = "x" }},
		"a request that nobody can have": {alter: func(p *corev1.Pod) { p.Annotations[v1alpha1.ModelsAnnotation] = "|" }},
	} {
		// The pod on a leaves 6 GiB, and c has no GPUs.
		w := newWorld(t, nodeOf(t, "a", 1), nodeOf(t, "b", 1), nodeOf(t, "c", 0))
		w.add(podOf(t, "low", 10))
		if err := w.ask("low", "a"); err != nil {
			t.Fatal(err)
		}
		w.tell("low")
		pod := podOf(t, "p", max(test.gibs, 1))
		if test.alter != nil {
			test.alter(pod)
		}
		w.add(pod)
		if got := strings.Join(w.core.preempt(question{pod, []string{"a", "b", "c", "nowhere"}}), " "); got != test.want {
			t.Errorf("%s: others may be ended on %q, want %q", name, got, test.want)
		}
		if len(w.core.asked) != 0 || len(w.core.flights) != 0 {
			t.Errorf("%s: it counts as filtered", name)
		}
	}
}

// What pods have that are to be ended is no room, neither while they are there nor as long as their node's agent holds it.
func TestPreemptCountsWhatVictimsHave(t *testing.T) {
	node := nodeOf(t, "a", 1)
	w := newWorld(t, node)
	w.add(podOf(t, "low", 10), podOf(t, "high", 10))
	keeps := func(when string, want bool) {
		t.Helper()
		q, err := readPreemption([]byte(fmt.Sprintf(`{"Pod":%s,"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"uid-low"}],"NumPDBViolations":0}}}`, textOf(t, w.pod("high")))))
		if err != nil {
			t.Fatal(err)
		}
		if got := w.core.preempt(q.question); (len(got) == 1) != want {
			t.Errorf("%s: others may be ended on %q", when, got)
		}
	}
	keeps("nobody has a share", true)
	if err := w.ask("low", "a"); err != nil {
		t.Fatal(err)
	}
	keeps("the victim is being bound", false)
	w.tell("low")
	keeps("the victim has all", false)
	held := node.DeepCopy()
	text, err := v1alpha1.NodeHeld{Shares: []v1alpha1.ShareHeld{{Pod: "uid-low", Name: "c", GPUs: []v1alpha1.GPUAssigned{{UUID: "GPU-61-0", Memory: 10 * gib}}}}}.Text()
	if err != nil {
		t.Fatal(err)
	}
	held.Annotations[v1alpha1.HeldAnnotation] = text
	w.core.setNode(trimNode(held))
	w.remove("low")
	w.tell("low")
	keeps("the agent holds it", false)
	w.core.setNode(trimNode(node))
	keeps("the agent has let go", true)
}

// A pod that is bound, or may be, needs nobody to be ended elsewhere.
func TestPreemptWhileBound(t *testing.T) {
	w := newWorld(t, nodeOf(t, "a", 1), nodeOf(t, "b", 1))
	w.add(podOf(t, "p", 10))
	ask := func() string { return strings.Join(w.core.preempt(question{w.pod("p"), []string{"a", "b"}}), " ") }
	w.manners(func(out http.ResponseWriter, _ func()) {
		if got := ask(); got != "" {
			t.Errorf("while it is bound others may be ended on %q", got)
		}
		away(out)
	})
	w.unread = 99
	if err := w.ask("p", "a"); err == nil {
		t.Fatal("it is bound")
	}
	if got := ask(); got != "a" {
		t.Errorf("it may be bound to a, and others may be ended on %q", got)
	}
}

// For whom nobody was ended is asked about again when there is room, as who was refused is, whatever of the two came first.
func TestPreemptedLater(t *testing.T) {
	for _, free := range []string{"p", "q"} {
		c := newCalls(t)
		c.add(podOf(t, "p", 10), podOf(t, "q", 10), podOf(t, "high", 10))
		for name, node := range map[string]string{"p": "a", "q": "b"} {
			if err := c.ask(name, node); err != nil {
				t.Fatal(err)
			}
			c.tell(name)
		}
		high := trimPod(c.pod("high"))
		c.refuse("high", "a")
		if got := c.core.preempt(question{high, []string{"b"}}); len(got) > 0 {
			t.Fatalf("others may be ended on %q", got)
		}
		c.want("full", time.Second)
		c.remove(free)
		c.tell(free)
		c.want("fits", time.Second)
		c.want("fits and nobody has asked", time.Second, "high")
		again := func() []string { return c.core.preempt(question{high, []string{"b"}}) }
		if free == "q" {
			if got := again(); len(got) != 1 || len(c.core.refusals.by) != 0 {
				t.Errorf("others may be ended on %q, and %d pods wait", got, len(c.core.refusals.by))
			}
			continue
		}
		// The scheduler wants it on b alone, and asks as often as it is called. So that is more and more seldom.
		again()
		c.want("called a moment ago", time.Second)
		c.want("called once", firstCall, "high")
		again()
		c.want("called a moment ago", firstCall)
		c.want("called twice", time.Second)
		c.want("called twice and long ago", firstCall, "high")
	}
}

// However many nodes a scheduler names before it ends pods, few are kept of each, and what pods have is counted.
func TestEndsAreBounded(t *testing.T) {
	var r refusals
	nodes := make([]string, mostNodes)
	for i := range nodes {
		nodes[i] = fmt.Sprintf("n%05d", i)
	}
	waits, asks := podOf(t, "waits", 1), podOf(t, "asks", 1)
	r.noteEnds(question{waits, nodes[:mostEnds]}, 0)
	r.note(question{asks, nodes[:100]}, 0)
	for i := range 3 * mostKept / mostEnds {
		r.noteEnds(question{asks, nodes[i : i+2*mostEnds]}, 0)
		if w := r.by[asks.UID]; len(r.by) != 2 || len(w.ends) != mostEnds || len(w.nodes) != 100 || r.kept > mostKept {
			t.Fatalf("%d of %d nodes are kept and %d others, %d names of %d pods", len(w.ends), 2*mostEnds, len(w.nodes), r.kept, len(r.by))
		}
	}
	r.sweep()
	if len(r.lists) != 3 || r.kept != 2*mostEnds+100 {
		t.Errorf("%d lists and %d names are kept of two pods", len(r.lists), r.kept)
	}
}

// preemptions are questions, and the names that they have, or a part of the error.
var preemptions = map[string]struct{ text, want string }{
	"as kube-scheduler writes it": {`{"Pod":` + somePod + `,"NodeNameToVictims":null,"NodeNameToMetaVictims":{"b-1.x":{"Pods":[{"UID":"v"},{"UID":"w"}],"NumPDBViolations":1},"a":{"Pods":[{"UID":"x"}],"NumPDBViolations":0}}}`, "a b-1.x"},
	"with space and later fields": {`{ "NodeNameToMetaVictims" : { "\u0061" : { "Pods" : [ ] , "Later" : "}" } }, "Later":[], "Pod" : ` + somePod + `}`, "a"},
	"no node":                     {`{"Pod":` + somePod + `,"NodeNameToMetaVictims":{}}`, ""},
	"whole pods":                  {`{"Pod":` + somePod + `,"NodeNameToVictims":{"a":{"Pods":[]}},"NodeNameToMetaVictims":null}`, "nodeCacheCapable"},
	"both":                        {`{"Pod":` + somePod + `,"NodeNameToVictims":{},"NodeNameToMetaVictims":{}}`, "nodeCacheCapable"},
	"neither":                     {`{"Pod":` + somePod + `,"NodeNameToVictims":null,"NodeNameToMetaVictims":null}`, "nodeCacheCapable"},
	"a list":                      {`{"Pod":` + somePod + `,"NodeNameToMetaVictims":["a"]}`, "NodeNameToMetaVictims"},
	"a node twice":                {`{"Pod":` + somePod + `,"NodeNameToMetaVictims":{"a":{},"\u0061":{}}}`, "twice"},
	"a name is empty":             {`{"Pod":` + somePod + `,"NodeNameToMetaVictims":{"":{}}}`, "1 to 253"},
	"a name is long":              {`{"Pod":` + somePod + `,"NodeNameToMetaVictims":{"` + strings.Repeat("a", 254) + `":{}}}`, "1 to 253"},
	"too many":                    {`{"Pod":` + somePod + `,"NodeNameToMetaVictims":{` + manyNodes(mostNodes+1) + `}}`, "more than"},
	"victims are null":            {`{"Pod":` + somePod + `,"NodeNameToMetaVictims":{"a":null}}`, "value is not the JSON"},
	"victims are a list":          {`{"Pod":` + somePod + `,"NodeNameToMetaVictims":{"a":[]}}`, "value is not the JSON"},
	"victims are no JSON":         {`{"Pod":` + somePod + `,"NodeNameToMetaVictims":{"a":{"Pods":}}}`, "value is not the JSON"},
	"victims without an end":      {`{"Pod":` + somePod + `,"NodeNameToMetaVictims":{"a":{"Pods":[}}}`, "JSON"},
	"deep":                        {`{"Pod":` + somePod + `,"NodeNameToMetaVictims":` + strings.Repeat(`{"a":`, mostDepth) + "1" + strings.Repeat("}", mostDepth) + `}`, ""},
	"too deep":                    {`{"Pod":` + somePod + `,"NodeNameToMetaVictims":` + strings.Repeat(`{"a":`, mostDepth+1) + "1" + strings.Repeat("}", mostDepth+1) + `}`, "deeper"},
	"no pod":                      {`{"Pod":null,"NodeNameToMetaVictims":{"a":{}}}`, "no pod"},
	"a pod without a UID":         {`{"Pod":{"metadata":{"name":"p","namespace":"n"}},"NodeNameToMetaVictims":{"a":{}}}`, "no UID"},
	"nothing":                     {``, "JSON"},
}

func manyNodes(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`"n%d":{}`, i)
	}
	return strings.Join(all, ",")
}

func TestPreemption(t *testing.T) {
	for name, test := range preemptions {
		q, err := readPreemption([]byte(test.text))
		switch {
		case name == "deep" && err == nil && len(q.nodes) == 1:
		case err != nil && (!errors.Is(err, errMessage) || test.want == "" || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %q", name, err, test.want)
		case err == nil && (strings.Join(q.nodes, " ") != test.want || q.pod.Name != "p"):
			t.Errorf("%s: %q of %+v, want %q", name, q.nodes, q.pod, test.want)
		}
	}
	// What is said of victims comes back as it was, of the nodes that are kept alone.
	q, err := readPreemption([]byte(preemptions["as kube-scheduler writes it"].text))
	if err != nil {
		t.Fatal(err)
	}
	for want, kept := range map[string][]string{
		`{"NodeNameToMetaVictims":{}}`: nil,
		`{"NodeNameToMetaVictims":{"b-1.x":{"Pods":[{"UID":"v"},{"UID":"w"}],"NumPDBViolations":1}}}`:                                                 {"b-1.x"},
		`{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"x"}],"NumPDBViolations":0},"b-1.x":{"Pods":[{"UID":"v"},{"UID":"w"}],"NumPDBViolations":1}}}`: q.nodes,
	} {
		if got := string(q.text(kept)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// Whatever is read of victims, the answer is what a general decoder reads of the question.
func FuzzPreemption(f *testing.F) {
	for name, test := range preemptions {
		if name != "too many" {
			f.Add([]byte(test.text))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		q, err := readPreemption(text)
		if err != nil {
			if !errors.Is(err, errMessage) {
				t.Error(err)
			}
			return
		}
		type victims struct {
			NodeNameToMetaVictims map[string]json.RawMessage
		}
		var asked, told victims
		fields, _ := objectOf(text, mostFields)
		if err := json.Unmarshal(fields["NodeNameToMetaVictims"], &asked.NodeNameToMetaVictims); err != nil {
			t.Fatalf("%s: %v", fields["NodeNameToMetaVictims"], err)
		}
		if err := json.Unmarshal(q.text(q.nodes), &told); err != nil || len(told.NodeNameToMetaVictims) != len(asked.NodeNameToMetaVictims) {
			t.Fatalf("%s: %v", q.text(q.nodes), err)
		}
		for name, of := range asked.NodeNameToMetaVictims {
			if !slices.Contains(q.nodes, name) || string(told.NodeNameToMetaVictims[name]) != string(of) {
				t.Errorf("of %q %s is told, and %s was asked", name, told.NodeNameToMetaVictims[name], of)
			}
		}
	})
}

func textOf(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
