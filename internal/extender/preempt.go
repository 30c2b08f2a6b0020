package extender

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// preemption asks on which of some nodes the scheduler may end pods of lower priority for a pod.
type preemption struct {
	question
	// victims is what the scheduler says of those pods, by node, as it is written. Nothing depends on it, so it goes back as it came.
	victims map[string][]byte
}

// readPreemption reads what the scheduler asks before it ends pods for another one.
func readPreemption(text []byte) (preemption, error) {
	var q preemption
	fields, err := objectOf(text, mostFields)
	if err != nil {
		return q, fmt.Errorf("%w: %w", errMessage, err)
	}
	if said(fields["NodeNameToVictims"]) {
		return q, fmt.Errorf("%w: %w: it asks with whole pods: set nodeCacheCapable: true for this extender in its configuration", errMessage, errSetUp)
	}
	if !said(fields["NodeNameToMetaVictims"]) {
		return q, fmt.Errorf("%w: it names no node: %w: set nodeCacheCapable: true for this extender in its configuration", errMessage, errSetUp)
	}
	if q.victims, err = objectOf(fields["NodeNameToMetaVictims"], mostNodes); err != nil {
		return q, fmt.Errorf("%w: NodeNameToMetaVictims: %w", errMessage, err)
	}
	for _, of := range q.victims {
		if of[0] != '{' || !json.Valid(of) {
			return q, fmt.Errorf("%w: NodeNameToMetaVictims: a node's value %w", errMessage, errJSON)
		}
	}
	q.nodes = slices.Sorted(maps.Keys(q.victims))
	if err := eachIsName(q.nodes); err != nil {
		return q, fmt.Errorf("%w: NodeNameToMetaVictims: %w", errMessage, err)
	}
	q.pod, err = readPod(fields["Pod"])
	return q, err
}

// text writes the answer: the nodes that are kept, with the same victims.
func (q *preemption) text(kept []string) []byte {
	size := 64
	for _, name := range kept {
		size += len(name) + len(q.victims[name]) + 4
	}
	out := append(make([]byte, 0, size), `{"NodeNameToMetaVictims":{`...)
	for i, name := range kept {
		out = append(appendText(comma(out, i), name), ':')
		out = append(out, q.victims[name]...)
	}
	return append(out, "}}"...)
}

// preempt returns the nodes on which a pod's shares have room now. Elsewhere the scheduler would end others in vain. What these have of
// GPUs is no room, though it will be: their node's agent holds it until some time after they are gone. Until then the pod would be
// refused there, and the scheduler would end pods on the next node.
func (c *core) preempt(q question) []string {
	if !asksShare(q.pod) {
		return q.nodes
	}
	if foreign(q.pod) != "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.keeps(q)
	if len(kept) > 0 {
		delete(c.refusals.by, q.pod.UID)
	} else {
		c.refusals.noteEnds(q, c.ledger.Changes())
	}
	return kept
}

// keeps is preempt for a pod that may be placed by slots.
func (c *core) keeps(q question) []string {
	if f := c.flights[q.pod.UID]; f != nil {
		return f.filter(q.nodes).fits
	}
	kept, err := c.ledger.Fitting(q.pod, q.nodes)
	if err != nil {
		return nil // filter tells people of it
	}
	return kept
}
