// Package replay runs the trace of a cluster through the allocator. It reads nodes
// and pods from CSV and passes one arrival after the other to [alloc.Search]. It is
// pure: the caller opens files, gives a clock and shows progress.
package replay

import (
	"fmt"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Pod is one arrival.
type Pod struct {
	Name    string
	Request alloc.Request
	// Milli is its demand in thousandths of a GPU.
	Milli int64
}

// Trace is a cluster and the pods that arrive there. Replays do not change it.
type Trace struct {
	Nodes []alloc.Node
	Pods  []Pod
}

// GPUs is the number of GPUs.
func (t *Trace) GPUs() int {
	sum := 0
	for i := range t.Nodes {
		sum += len(t.Nodes[i].GPUs)
	}
	return sum
}

// clone copies the nodes in the order of a permutation.
func (t *Trace) clone(order []int) []alloc.Node {
	nodes := make([]alloc.Node, len(order))
	for i, from := range order {
		nodes[i] = t.Nodes[from]
		nodes[i].GPUs = append([]alloc.GPU(nil), t.Nodes[from].GPUs...)
	}
	return nodes
}

func (t *Trace) requests() []alloc.Request {
	requests := make([]alloc.Request, len(t.Pods))
	for i := range t.Pods {
		requests[i] = t.Pods[i].Request
	}
	return requests
}

// FieldError is an error in a line of a file.
type FieldError struct {
	File   string
	Line   int
	Column string // empty for an error in the whole line
	Err    error
}

// Error implements error.
func (e *FieldError) Error() string {
	if e.Column == "" {
		return fmt.Sprintf("read %s, line %d: %v", e.File, e.Line, e.Err)
	}
	return fmt.Sprintf("read %s, line %d, column %s: %v", e.File, e.Line, e.Column, e.Err)
}

// Unwrap returns the cause.
func (e *FieldError) Unwrap() error { return e.Err }
