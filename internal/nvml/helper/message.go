package helper

import (
	"errors"
	"time"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// kind is what a question is about.
type kind int

const (
	askOpen kind = iota // the driver's version, and how many GPUs there are
	askIdentify
	askCondition
	askProcesses
	askUsed
	askUtilisation
)

// question is what the agent asks, encoded by encoding/gob. A helper answers one at a time, in order.
type question struct {
	Kind  kind
	Index int // of the GPU
	// Since is for askUtilisation.
	Since time.Time
	// Path is the library's, and Known are the GPUs that the agent has numbered, for askOpen.
	Path  string
	Known []nvml.GPU
}

// answer has what the question was for, and a fault if that is not all.
type answer struct {
	Fault *fault

	Version     nvml.Version
	Count       int
	Facts       nvml.Facts
	Condition   nvml.Condition
	Processes   []nvml.Process
	Used        uint64
	Utilisation []nvml.Utilisation
}

// fault is an error on its way from one process to another.
type fault struct {
	Text string
	// Kind is the index in kinds, -1 for none of them.
	Kind int
}

// kinds are the errors by which callers decide, the most special first.
var kinds = []error{nvml.ErrLost, nvml.ErrVanished, nvml.ErrReset, nvml.ErrNotSupported, nvml.ErrDriver}

func faultOf(err error) *fault {
	if err == nil {
		return nil
	}
	f := &fault{Text: err.Error(), Kind: -1}
	for i, k := range kinds {
		if errors.Is(err, k) {
			f.Kind = i
			break
		}
	}
	return f
}

func (f *fault) err() error {
	if f == nil {
		return nil
	}
	return f
}

// Error implements error.
func (f *fault) Error() string { return f.Text }

// Unwrap is the error of kinds, so that errors.Is finds it.
func (f *fault) Unwrap() error {
	if f.Kind < 0 || f.Kind >= len(kinds) {
		return nil
	}
	return kinds[f.Kind]
}
