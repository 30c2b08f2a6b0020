// Package queuefile reads queues from a file of YAML, as people write them for a cluster or as kubectl prints them. It is pure:
// the caller opens the file.
package queuefile

import (
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/queue"
)

// Bounds of a file.
const (
	// MaxBytes bounds its size.
	MaxBytes = 4 << 20
	// MaxQueues bounds how many queues it has.
	MaxQueues = 10_000
)

// Fault is what is wrong with a file, in one line.
type Fault struct {
	File string
	// Document counts from 1; 0 is a fault of the whole file. Item counts from 1 in a list, 0 is no list.
	Document, Item int
	Problem        string
}

// Error implements error: "read queues.yaml, document 2: …".
func (f *Fault) Error() string {
	text := "read " + f.File
	if f.Document > 0 {
		text += fmt.Sprintf(", document %d", f.Document)
	}
	if f.Item > 0 {
		text += fmt.Sprintf(", item %d", f.Item)
	}
	return text + ": " + f.Problem
}

// position is where in a file a queue stands.
type position struct{ document, item int }

// Read reads the queues of a file. Objects of other groups than Divvy's, such as the pods of an example, are passed over. An
// unknown field, an amount that a queue cannot have, a cycle, a parent that is not there and a namespace that two queues name
// are each a [Fault].
func Read(file string, content []byte) ([]queue.Spec, error) {
	r := reader{file: file, positions: map[string]position{}}
	if len(content) > MaxBytes {
		return nil, r.fault(position{}, fmt.Sprintf("it is larger than %d bytes", MaxBytes))
	}
	for i, document := range split(content) {
		if err := r.document(position{document: i + 1}, document); err != nil {
			return nil, err
		}
	}
	if len(r.specs) == 0 {
		return nil, r.fault(position{}, fmt.Sprintf("there is no %s of %s in it", v1alpha1.KindQueue, v1alpha1.APIVersion))
	}
	for _, c := range queue.NewTree(r.specs).Conditions() {
		return nil, r.fault(r.positions[c.Queue], "queue "+c.Queue+": "+c.Message)
	}
	return r.specs, nil
}

// split divides a file into documents. Those that hold nothing keep their number.
func split(content []byte) (documents []string) {
	var one strings.Builder
	for line := range strings.Lines(string(content)) {
		if rest, ok := strings.CutPrefix(line, "---"); ok && strings.TrimSpace(strings.SplitN(rest, "#", 2)[0]) == "" {
			if len(documents) > 0 || holds(one.String()) {
				documents = append(documents, one.String())
			}
			one.Reset()
			continue
		}
		one.WriteString(line)
	}
	return append(documents, one.String())
}

// holds reports whether a document is more than comments.
func holds(document string) bool {
	for line := range strings.Lines(document) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return true
		}
	}
	return false
}

type reader struct {
	file      string
	specs     []queue.Spec
	positions map[string]position
}

func (r *reader) fault(at position, problem string) error {
	return &Fault{File: r.file, Document: at.document, Item: at.item, Problem: oneLine(problem)}
}

// document reads a queue, or a list of them as kubectl prints it.
func (r *reader) document(at position, text string) error {
	if !holds(text) {
		return nil
	}
	object, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return r.fault(at, err.Error())
	}
	var head struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(object, &head); err != nil {
		return r.fault(at, "it is no object of a cluster: "+err.Error())
	}
	group, _, _ := strings.Cut(head.APIVersion, "/")
	switch {
	case head.Kind == "List" && head.APIVersion == "v1", head.Kind == v1alpha1.KindQueue+"List":
		for i, item := range head.Items {
			if err := r.queue(position{at.document, i + 1}, item); err != nil {
				return err
			}
		}
		return nil
	case head.APIVersion == "" || head.Kind == "":
		return r.fault(at, "it has no apiVersion or no kind")
	case group != v1alpha1.Domain:
		return nil
	}
	return r.queue(at, object)
}

func (r *reader) queue(at position, object []byte) error {
	q, err := v1alpha1.DecodeQueue(object)
	if err != nil {
		return r.fault(at, err.Error())
	}
	name := q.Metadata.Name
	if name == "" {
		return r.fault(at, "metadata.name is missing")
	}
	if err := q.Spec.Validate(name); err != nil {
		return r.fault(at, err.Error())
	}
	if first, twice := r.positions[name]; twice {
		return r.fault(at, fmt.Sprintf("queue %s is already in document %d", name, first.document))
	}
	if len(r.specs) == MaxQueues {
		return r.fault(at, fmt.Sprintf("more than %d queues", MaxQueues))
	}
	r.positions[name] = at
	r.specs = append(r.specs, queue.Spec{Name: name, QueueSpec: q.Spec})
	return nil
}

// oneLine puts several faults into a line, without saying of each that it is one of a request.
func oneLine(problem string) string {
	problem = strings.ReplaceAll(problem, v1alpha1.ErrRequest.Error()+": ", "")
	problem = strings.TrimPrefix(problem, "read the queue: ")
	problem = strings.ReplaceAll(problem, "unmarshal errors:\n  ", "")
	return strings.ReplaceAll(problem, "\n", "; ")
}
