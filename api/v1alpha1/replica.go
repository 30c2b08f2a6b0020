package v1alpha1

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
)

// ReplicasAnnotation is what the agent's device plugin gave a container, a list of [Replica] as JSON. The kubelet puts it
// on the container; no pod can.
const ReplicasAnnotation = Domain + "/replicas"

// Replica is a part of a GPU, or of a MIG instance, that a device plugin counts. It says all that its share needs, so
// that a container that starts again finds the same share after its node's policy has changed.
type Replica struct {
	// UUID is the GPU's.
	UUID string `json:"uuid"`
	// Instance is the UUID of the MIG instance, MIG-…, of which this is all or a part; it is empty where a GPU is divided
	// without MIG. Profile, Start and Memory are the instance's: the driver's name of the profile, the memory slice at
	// which it begins, and its bytes; where it is divided, those that the driver leaves to its shares.
	Instance string `json:"instance,omitempty"`
	Profile  string `json:"profile,omitempty"`
	Start    int    `json:"start,omitempty"`
	Memory   uint64 `json:"memory,omitempty"`
	// Of is into how many replicas the GPU or the instance is divided, 1 or more; 0 means all of it.
	Of int `json:"of,omitempty"`
	// Number tells replicas of one GPU or instance apart, from 0.
	Number int `json:"number,omitempty"`
	// Backend is that of the share; a whole GPU and a whole instance have none.
	Backend Backend `json:"backend,omitempty"`
}

// Device is the UUID of what the replica is a part of: the instance, or the GPU.
func (r Replica) Device() string { return cmp.Or(r.Instance, r.UUID) }

// ID is the name of the replica as NVIDIA's device plugin writes it, for monitors that know its form.
func (r Replica) ID() string {
	if r.Of == 0 {
		return r.Device()
	}
	return fmt.Sprintf("%s::%d", r.Device(), r.Number)
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
		if err := r.validate(); err != nil {
			return nil, err
		}
		for _, other := range all[:i] {
			if err := r.beside(other); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// validate returns why this is no replica.
func (r Replica) validate() error {
	switch {
	case r.UUID == "":
		return fmt.Errorf("%w: one names no GPU", ErrReplicas)
	case r.Of < 0 || r.Of > SlotsPerGPU || r.Number < 0 || r.Number >= max(r.Of, 1):
		return fmt.Errorf("%w: number %d of %d", ErrReplicas, r.Number, r.Of)
	case r.Instance != "" && (!validProfile.MatchString(r.Profile) || r.Start < 0 || r.Memory == 0):
		return fmt.Errorf("%w: instance %s of profile %q at %d with %d bytes", ErrReplicas, r.Instance, r.Profile, r.Start, r.Memory)
	}
	return nil
}

// beside returns why a container cannot have both.
func (r Replica) beside(other Replica) error {
	switch {
	case other.Instance != r.Instance:
		return fmt.Errorf("%w: %s beside %s: a process can use one MIG instance and nothing beside it", ErrReplicas, r.ID(), other.ID())
	case other.UUID == r.UUID && (other.Of != r.Of || other.Backend != r.Backend || other.Number == r.Number):
		return fmt.Errorf("%w: %s beside %s", ErrReplicas, r.ID(), other.ID())
	}
	return nil
}
