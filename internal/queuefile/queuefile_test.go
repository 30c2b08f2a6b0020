package queuefile

import (
	"strings"
	"testing"
)

const head = "apiVersion: divvy.dev/v1alpha1\nkind: Queue\n"

func TestRead(t *testing.T) {
	specs, err := Read("q.yaml", []byte(`# Two departments.
---
`+head+`metadata: {name: research, annotations: {a: b}}
spec: {resources: [{guaranteed: 8}]}
status: {running: 2}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
--- # a list, as kubectl prints it
apiVersion: v1
kind: List
items:
- {apiVersion: divvy.dev/v1alpha1, kind: Queue, metadata: {name: vision}, spec: {parent: research, namespaces: [v]}}
`))
	if err != nil || len(specs) != 2 || specs[0].Name != "research" || specs[1].Parent != "research" || specs[1].Namespaces[0] != "v" {
		t.Errorf("%+v, %v", specs, err)
	}
}

// Each fault names the file, the document and the field, in one line.
func TestFaults(t *testing.T) {
	queue := func(name, spec string) string {
		return head + "metadata: {name: " + name + "}\nspec: {" + spec + "}\n---\n"
	}
	for name, c := range map[string]struct{ text, want string }{
		"nothing":            {"# nothing\n---\n", "read q.yaml: there is no Queue of divvy.dev/v1alpha1 in it"},
		"a negative amount":  {queue("a", "") + queue("b", "resources: [{guaranteed: -1}]"), "read q.yaml, document 2: queue b: resource 0: guaranteed -1: it is negative: give 0 or more"},
		"two faults":         {queue("a", "resources: [{unit: tflops}], grace: 1000h"), `read q.yaml, document 1: queue a: resource 0: unit "tflops": choose gpus, cores or memory; queue a: grace 1000h0m0s: give 0s to 168h0m0s`},
		"a huge amount":      {queue("a", "resources: [{guaranteed: 99999999999999}]"), "document 1: queue a: resource 0: guaranteed 99999999999999: it is more than any cluster has"},
		"an unknown field":   {queue("a", "weigth: 1"), `read q.yaml, document 1: unknown field "spec.weigth"`},
		"a field twice":      {"\n---\n" + head + "metadata: {name: a}\nspec: {parent: a, parent: b}\n", `document 1: yaml: line 4: key "parent" already set in map`},
		"no YAML":            {queue("a", "") + "a: [\n", "document 2: yaml: line 1: did not find expected node content"},
		"no object":          {"- 1\n", "document 1: it is no object of a cluster: "},
		"no kind":            {"apiVersion: divvy.dev/v1alpha1\n", "document 1: it has no apiVersion or no kind"},
		"another version":    {strings.ReplaceAll(queue("a", ""), "v1alpha1", "v2"), `document 1: it is "divvy.dev/v2" "Queue", not divvy.dev/v1alpha1 Queue`},
		"no name":            {head + "spec: {}\n", "document 1: metadata.name is missing"},
		"a bad name":         {queue("A", ""), "document 1: queue A: a name has at most 63"},
		"twice":              {queue("a", "") + queue("a", ""), "document 2: queue a is already in document 1"},
		"a cycle":            {queue("x", "") + queue("a", "parent: b") + queue("b", "parent: a"), "document 2: queue a: it is its own ancestor: a → b → a"},
		"no parent":          {queue("a", "parent: b"), "document 1: queue a: there is no queue b"},
		"a namespace of two": {queue("a", "namespaces: [team]") + queue("b", "namespaces: [team]"), "document 2: queue b: namespace team is queue a's"},
		"in a list":          {"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod}]\n", "document 1, item 1: it is"},
		"too large":          {strings.Repeat("#", MaxBytes+1), "larger than 4194304 bytes"},
	} {
		_, err := Read("q.yaml", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want %s", name, err, c.want)
		}
	}
}
