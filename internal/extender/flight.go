package extender

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// errRefused marks a binding that is not done, for a reason of the pod's or its node's.
var errRefused = errors.New("pod is not bound")

// reserve notes a place for a pod that is to be bound, and returns its binding. It returns nil for one that is done already.
func (c *core) reserve(pod *corev1.Pod, node string, now time.Time) (*flight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := pod.Namespace + "/" + pod.Name
	f := c.flights[pod.UID]
	switch {
	case pod.DeletionTimestamp != nil || ended(pod):
		return nil, fmt.Errorf("%w: %s ends", errRefused, key)
	case pod.Spec.NodeName != "":
		return nil, fmt.Errorf("%w: another scheduler has bound %s to %s", errRefused, key, pod.Spec.NodeName)
	case f != nil && f.state == bound && f.node == node:
		return nil, nil
	case f != nil && f.keeps(pod, node) != nil:
		return nil, f.keeps(pod, node)
	case foreign(pod) != "":
		return nil, fmt.Errorf("%w: %s", errRefused, foreign(pod))
	}
	if filteredFor, known := c.asked[pod.UID]; known && filteredFor != requestOf(pod) {
		delete(c.asked, pod.UID)
		return nil, fmt.Errorf("%w: what %s asks for was changed after it was filtered", errRefused, key)
	}
	if f == nil {
		assignment, err := c.ledger.Reserve(pod, node)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errRefused, err)
		}
		text, err := assignment.Text()
		if err != nil {
			c.ledger.Undo(pod.UID)
			return nil, fmt.Errorf("%w: %w", errRefused, err)
		}
		f = &flight{pod: pod.UID, key: key, node: node, assignment: text, request: requestOf(pod)}
		c.flights[pod.UID] = f
	}
	f.state, f.since = writing, now
	return f, nil
}

// keeps says why a binding that is not answered yet is not written again for a node and for what the pod asks now, nil if it may be.
func (f *flight) keeps(pod *corev1.Pod, node string) error {
	switch {
	case f.state == writing || f.node != node:
		return fmt.Errorf("%w: %s is being bound to %s", errRefused, f.key, f.node)
	case f.request != requestOf(pod):
		return fmt.Errorf("%w: what %s asks for was changed while it may be bound to %s", errRefused, f.key, f.node)
	}
	return nil
}

// settle notes what became of a binding.
func (c *core) settle(f *flight, o outcome, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(f, o, now)
}

func (c *core) note(f *flight, o outcome, now time.Time) {
	switch o {
	case isBound:
		f.state, f.since, f.looked = bound, now, now
		if !c.ledger.Bound(f.pod) {
			delete(c.flights, f.pod) // it was seen already
		}
	case isNot:
		c.ledger.Undo(f.pod)
		delete(c.flights, f.pod)
	case isUnknown:
		f.state, f.since, f.looked = unanswered, f.doubted, now
		if pod := c.pods[f.key]; pod != nil && pod.UID == f.pod && pod.Spec.NodeName != "" {
			delete(c.flights, f.pod) // it was seen while it was written
		}
	}
}

// outcome is what is known of a binding.
type outcome uint8

const (
	isUnknown outcome = iota
	isBound
	isNot
)

// outcomeOf says from a pod as it is now, nil for one that is not there, what became of its binding. One that has no node may yet
// get it.
func (f *flight) outcomeOf(pod *corev1.Pod) outcome {
	switch {
	case pod == nil || pod.UID != f.pod:
		return isNot
	case pod.Spec.NodeName == "":
		return isUnknown
	case pod.Spec.NodeName == f.node && pod.Annotations[v1alpha1.AssignmentAnnotation] == f.assignment:
		return isBound
	}
	return isNot
}

const (
	// unseenFor is for how long watches may not tell of a pod that was bound before it is read.
	unseenFor = 30 * time.Second
	// answeredBy is when the API server has ended every request, whose time it bounds to a minute by default.
	answeredBy = 70 * time.Second
	// lookAgain is the least time between two readings of a pod.
	lookAgain = time.Second
)

// due are the bindings whose pods are to be read: those that were not answered, more and more seldom, and those that watches do
// not tell of.
func (c *core) due(now time.Time) (all []*flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.flights {
		quiet := now.Sub(f.looked)
		switch {
		case f.state == unanswered && quiet >= min(max(lookAgain, f.looked.Sub(f.since)), unseenFor),
			f.state == bound && quiet >= unseenFor:
			f.looked = now
			all = append(all, f)
		}
	}
	return all
}

// looked notes what was read of a pod whose binding was not answered, or not seen. Nothing is given back while the API server may
// still do it, and none that is done is ended before watches tell of the pod.
func (c *core) looked(f *flight, o outcome, now time.Time) (settled outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flights[f.pod] != f || f.state == writing {
		return isUnknown
	}
	if o == isUnknown && now.Sub(f.since) >= answeredBy {
		o = isNot
	}
	if o == isNot || o == isBound && f.state == unanswered {
		c.note(f, o, now)
	}
	return o
}

// unseen counts the bindings of pods that watches have not told of.
func (c *core) unseen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.flights)
}
