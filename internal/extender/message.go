package extender

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
)

const (
	// longestMessage bounds a question, in bytes: a pod, which the API server takes up to 3 MiB, and the names of all nodes.
	longestMessage = 16 << 20
	// mostNodes is more than any cluster has.
	mostNodes = 1 << 16
	// longestName is the longest name of an object in the API, in bytes.
	longestName = 253
)

var (
	// errMessage marks a question that cannot be read.
	errMessage = errors.New("invalid message")
	// errSetUp marks one that a scheduler asks whose configuration is wrong, which people are to hear of.
	errSetUp = errors.New("the scheduler is set up wrongly")
)

// question asks about a pod and some nodes.
type question struct {
	pod   *corev1.Pod
	nodes []string
}

// binding asks to bind a pod.
type binding struct {
	PodName      string
	PodNamespace string
	PodUID       string
	Node         string
}

// readQuestion reads what the scheduler asks when it filters or scores nodes. Fields that it may have besides are left alone.
func readQuestion(text []byte) (question, error) {
	var q question
	fields, err := objectOf(text, mostFields)
	if err != nil {
		return q, fmt.Errorf("%w: %w", errMessage, err)
	}
	if said(fields["Nodes"]) {
		return q, fmt.Errorf("%w: %w: it asks with whole nodes: set nodeCacheCapable: true for this extender in its configuration", errMessage, errSetUp)
	}
	if q.nodes, err = namesOf(fields["NodeNames"]); err != nil {
		return q, fmt.Errorf("%w: NodeNames: %w", errMessage, err)
	}
	q.pod, err = readPod(fields["Pod"])
	return q, err
}

// readPod reads the pod of a question.
func readPod(text []byte) (*corev1.Pod, error) {
	if !said(text) {
		return nil, fmt.Errorf("%w: it has no pod", errMessage)
	}
	pod := &corev1.Pod{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, pod); err != nil {
		return nil, fmt.Errorf("%w: Pod: %w", errMessage, err)
	}
	if pod.UID == "" || pod.Name == "" || pod.Namespace == "" {
		return nil, fmt.Errorf("%w: the pod has no name or no UID", errMessage)
	}
	return pod, nil
}

// said reports whether a field has a value.
func said(text []byte) bool { return len(text) > 0 && string(text) != "null" }

// readBinding reads what the scheduler asks when it binds a pod.
func readBinding(text []byte) (binding, error) {
	var b binding
	if _, err := objectOf(text, mostFields); err != nil { // which refuses a field that occurs twice
		return b, fmt.Errorf("%w: %w", errMessage, err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &b); err != nil {
		return b, fmt.Errorf("%w: %w", errMessage, err)
	}
	for field, value := range map[string]string{"PodName": b.PodName, "PodNamespace": b.PodNamespace, "PodUID": b.PodUID, "Node": b.Node} {
		if value == "" || len(value) > longestName || strings.ContainsAny(value, "/\\%? \n") {
			return binding{}, fmt.Errorf("%w: %s is not a name", errMessage, field)
		}
	}
	return b, nil
}

// filtered answers which nodes a pod fits on. What fits nowhere is told as what preemption does not change: the scheduler would
// look for pods to end by what it knows itself, which is nothing of GPUs.
type filtered struct {
	fits    []string
	refused []refused
	fault   string
}

// refused is a node that a pod does not fit on, and why.
type refused struct{ node, why string }

// scored is a node's score.
type scored struct {
	node  string
	score int
}

// text writes the answer.
func (f *filtered) text() []byte {
	size := 128
	for _, name := range f.fits {
		size += len(name) + 3
	}
	for _, r := range f.refused {
		size += len(r.node) + len(r.why) + 6
	}
	out := make([]byte, 0, size)
	out = append(out, `{"NodeNames":[`...)
	for i, name := range f.fits {
		out = appendText(comma(out, i), name)
	}
	out = append(out, `],"FailedAndUnresolvableNodes":{`...)
	for i, r := range f.refused {
		out = append(appendText(comma(out, i), r.node), ':')
		out = appendText(out, r.why)
	}
	out = append(out, `},"Error":`...)
	return append(appendText(out, f.fault), '}')
}

// scoresText writes the answer to what is scored. A node with score 0 is left out, which means the same to the scheduler: of most
// nodes it need not read anything.
func scoresText(all []scored) []byte {
	out := []byte{'['}
	for _, s := range all {
		if s.score == 0 {
			continue
		}
		out = appendText(append(comma(out, len(out)-1), `{"Host":`...), s.node)
		out = fmt.Appendf(out, `,"Score":%d}`, s.score)
	}
	return append(out, ']')
}

// boundText writes the answer to a binding, "" for one that was done.
func boundText(fault string) []byte {
	return append(appendText([]byte(`{"Error":`), fault), '}')
}

func comma(out []byte, i int) []byte {
	if i > 0 {
		return append(out, ',')
	}
	return out
}

// appendText appends a string of JSON.
func appendText(out []byte, text string) []byte {
	if plain(text) {
		out = append(out, '"')
		out = append(out, text...)
		return append(out, '"')
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return append(out, `""`...) // there is no such string
	}
	return append(out, quoted...)
}

// plain reports whether a text is the same in JSON.
func plain(text string) bool {
	return !slices.ContainsFunc([]byte(text), func(b byte) bool { return b < ' ' || b > '~' || b == '"' || b == '\\' })
}
