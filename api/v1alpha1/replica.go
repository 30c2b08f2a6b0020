package v1alpha1

import (
	"encoding/json"
	"errors"
	"fmt"
)

// ReplicasAnnotation is what the agent's device plugin gave a container, a list of [Replica] as JSON. The kubelet puts it
// on the container; no pod can.
const ReplicasAnnotation = Domain + "/replicas"

// Replica is a part of a GPU that a device plugin counts. It says all that its share needs, so that a container that
// starts again finds the same share after its node's policy has changed.
type Replica struct {
	UUID string `json:"uuid"`
	// Of is into how many replicas the GPU is divided, 1 or more; 0 means the whole GPU.
	Of int `json:"of,omitempty"`
	// Number tells replicas of one GPU apart, from 0.
	Number int `json:"number,omitempty"`
	// Backend is that of the share; a whole GPU has none.
	Backend Backend `json:"backend,omitempty"`
}

// ID is the name of the replica as NVIDIA's device plugin writes it, for monitors that know its form.
func (r Replica) ID() string {
	if r.Of == 0 {
		return r.UUID
	}
	return fmt.Sprintf("%s::%d", r.UUID, r.Number)
}

// ErrReplicas marks every error of [ParseReplicas].
var ErrReplicas = errors.New("invalid replicas of GPUs")

// ReplicasText renders replicas for [ReplicasAnnotation].
func ReplicasText(replicas []Replica) string {
	text, _ := json.Marshal(replicas) // texts and numbers alone
	return string(text)
}

// ParseReplicas reads a [ReplicasAnnotation].
func ParseReplicas(text string) ([]Replica, error) {
	var all []Replica
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReplicas, err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: there are none", ErrReplicas)
	}
	for i, r := range all {
		switch {
		case r.UUID == "":
			return nil, fmt.Errorf("%w: one names no GPU", ErrReplicas)
		case r.Of < 0 || r.Of > SlotsPerGPU || r.Number < 0 || r.Number >= max(r.Of, 1):
			return nil, fmt.Errorf("%w: number %d of %d", ErrReplicas, r.Number, r.Of)
		}
		for _, other := range all[:i] {
			if other.UUID == r.UUID && (other.Of != r.Of || other.Backend != r.Backend || other.Number == r.Number) {
				return nil, fmt.Errorf("%w: %s beside %s", ErrReplicas, r.ID(), other.ID())
			}
		}
	}
	return all, nil
}
