package v1alpha1

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	kjson "sigs.k8s.io/json"
)

// Bounds of annotations.
const (
	// annotationVersion is the version of all annotations here but one.
	annotationVersion = 1
	// gpusVersion is that of [NodeGPUs]. Version 1, which is read too, says less of each GPU.
	gpusVersion = 2
	// maxAnnotation is more than any honest annotation takes, in bytes, but that of what a node's agent holds: maxHeld.
	// The API server takes 256 KiB for all annotations of an object.
	maxAnnotation = 64 << 10
	maxHeld       = 160 << 10
	// maxPodShares bounds an assignment, and maxAskedShares a request: the allocator places no more for one pod.
	maxPodShares   = 64
	maxAskedShares = 32
	maxName        = 63
)

// ErrAnnotation marks every error of the parsers of annotations.
var ErrAnnotation = errors.New("invalid annotation")

// PodRequest is what the containers of a pod ask.
type PodRequest struct {
	Version int             `json:"version"`
	Shares  []ShareRequired `json:"shares"`
}

// ShareRequired is a share on each of so many different GPUs, or whole GPUs,
// for one container or for several that take turns.
type ShareRequired struct {
	// Name is the share's within its pod: that of its main container.
	Name       string   `json:"name"`
	Containers []string `json:"containers"`
	// GPUs is how many, 1 to [MaxGPUs].
	GPUs  int  `json:"gpus"`
	Whole bool `json:"whole,omitempty"`
	// Memory is in bytes per GPU; without Part, 0 is all that a GPU has.
	Memory uint64 `json:"memory,omitempty"`
	// Part is memory as a part of each GPU, in place of Memory.
	Part *Part `json:"part,omitempty"`
	// Cores is the percentage of each GPU's time, 0 to [MaxCores].
	Cores int `json:"cores,omitempty"`
	// Config is complete, and absent for whole GPUs.
	Config *ShareConfig `json:"config,omitempty"`
	// Selectors are CEL expressions over a GPU's attributes, all to be true.
	Selectors []string `json:"selectors,omitempty"`
	// SameNUMA wants all GPUs on one NUMA node.
	SameNUMA bool `json:"sameNUMA,omitempty"`
}

// Amount returns the memory that is asked of each GPU.
func (s *ShareRequired) Amount() Memory {
	if s.Part != nil {
		return PartOf(s.Part.Of, s.Part.In)
	}
	return Bytes(s.Memory)
}

// SetAmount notes the memory that is asked of each GPU.
func (s *ShareRequired) SetAmount(m Memory) {
	s.Memory, s.Part = m.InBytes(), nil
	if part, ok := m.Part(); ok {
		s.Part = &part
	}
}

// PodAssignment is the GPUs that a pod was given.
type PodAssignment struct {
	Version int `json:"version"`
	// Pod is the UID of the pod that it was made for, so that a copy on another pod
	// is refused.
	Pod    string          `json:"pod"`
	Shares []ShareAssigned `json:"shares"`
}

// ShareAssigned is the answer to the [ShareRequired] of the same name.
type ShareAssigned struct {
	Name       string        `json:"name"`
	Containers []string      `json:"containers"`
	GPUs       []GPUAssigned `json:"gpus"`
	Whole      bool          `json:"whole,omitempty"`
	Config     *ShareConfig  `json:"config,omitempty"`
}

// GPUAssigned is the part of one GPU that a share has.
type GPUAssigned struct {
	UUID string `json:"uuid"`
	// Memory is in bytes, more than 0; Cores in percent, 0 to [MaxCores].
	Memory uint64 `json:"memory"`
	Cores  int    `json:"cores,omitempty"`
}

// ParsePodRequest reads a [RequestAnnotation], strictly: unknown and repeated
// fields, another version and amounts that no share can have are errors.
func ParsePodRequest(text string) (PodRequest, error) {
	var r PodRequest
	if err := parseAnnotation(RequestAnnotation, text, &r, r.validate); err != nil {
		return PodRequest{}, err
	}
	return r, nil
}

// ParsePodAssignment reads an [AssignmentAnnotation] as strictly.
func ParsePodAssignment(text string) (PodAssignment, error) {
	var a PodAssignment
	if err := parseAnnotation(AssignmentAnnotation, text, &a, a.validate); err != nil {
		return PodAssignment{}, err
	}
	return a, nil
}

// Text writes the annotation; equal requests have equal texts.
func (r PodRequest) Text() (string, error) {
	r.Version = annotationVersion
	return annotationText(RequestAnnotation, r, r.validate)
}

// Text writes the annotation.
func (a PodAssignment) Text() (string, error) {
	a.Version = annotationVersion
	return annotationText(AssignmentAnnotation, a, a.validate)
}

func parseAnnotation(name, text string, into any, validate func() error) error {
	if most := mostBytes(name); len(text) > most {
		return fmt.Errorf("%w %s: %d bytes are more than %d", ErrAnnotation, name, len(text), most)
	}
	faults, err := kjson.UnmarshalStrict([]byte(text), into)
	if err := errors.Join(append(faults, err)...); err != nil {
		return fmt.Errorf("%w %s: %w", ErrAnnotation, name, err)
	}
	if err := validate(); err != nil {
		return fmt.Errorf("%w %s: %w", ErrAnnotation, name, err)
	}
	return nil
}

func annotationText(name string, value any, validate func() error) (string, error) {
	if err := validate(); err != nil {
		return "", fmt.Errorf("%w %s: %w", ErrAnnotation, name, err)
	}
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false) // nobody shows it in a page as it is, and six bytes for one are taken from what fits
	if err := encoder.Encode(value); err != nil {
		return "", fmt.Errorf("write annotation %s: %w", name, err)
	}
	text := bytes.TrimSuffix(encoded.Bytes(), []byte("\n"))
	if most := mostBytes(name); len(text) > most {
		return "", fmt.Errorf("%w %s: %d bytes are more than %d: ask for less in one pod", ErrAnnotation, name, len(text), most)
	}
	return string(text), nil
}

// mostBytes is the greatest length of an annotation.
func mostBytes(name string) int {
	if name == HeldAnnotation {
		return maxHeld
	}
	return maxAnnotation
}
