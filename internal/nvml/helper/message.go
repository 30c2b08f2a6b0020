package helper

import (
	"errors"
	"time"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// kind is what an item of a question is about.
type kind int

const (
	askIdentify kind = iota
	askCondition
	askProcesses
	askUsed
	askUtilisation
	askBusy
	askReading
	askComputeMode
	setComputeMode
	askMIGMode
	setMIGMode
	askMIGProfiles
	askMIGInstances
	createMIGInstance
	destroyMIGInstance
	createMIGCompute
	destroyMIGCompute
)

// item is what is asked about one GPU.
type item struct {
	Kind  kind
	Index int // of the GPU
	// Since is for askUtilisation and askBusy.
	Since time.Time
	// Mode is for setComputeMode.
	Mode string
	// MIG is for what concerns MIG.
	MIG migItem
}

// migItem says what is asked about the MIG mode or the instances of a GPU.
type migItem struct {
	// On is the mode to set.
	On bool
	// Profile and At are those of the GPU instance to make.
	Profile int
	At      nvml.MIGPlacement
	// Instance and Compute are the driver's numbers of what is meant.
	Instance, Compute int
}

// question is what the agent asks, encoded by encoding/gob. A helper answers one at a time, in order, and asks the
// library about the items one after the other.
type question struct {
	// Open asks to open the library at Path, where Known are the GPUs that the agent has numbered: for the driver's
	// version, and how many GPUs there are.
	Open  bool
	Path  string
	Known []nvml.GPU

	Items []item
	// Cut asks for the answer to the question before now, whatever is missing.
	Cut bool
}

// answer is what there is to a question.
type answer struct {
	// Fault is why the library could not be opened.
	Fault   *fault
	Version nvml.Version
	Count   int

	// Results are those of the items in their order. Those of the last are missing where the question was cut.
	Results []result
	// Busy tells that the question was cut in the call about the first item without a result. Another answer follows when
	// the call returns, with its result alone, and the helper asks about no further item.
	Busy bool
}

// result has what an item was for, and a fault if that is not all.
type result struct {
	Fault       *fault
	Facts       *nvml.Facts
	Condition   *nvml.Condition
	Processes   []nvml.Process
	Used        uint64
	Instances   []nvml.InstanceMemory
	Utilisation []nvml.Utilisation
	Busy        []nvml.Sample
	Reading     []byte // JSON: encoding/gob drops a zero behind a pointer, as of an idle GPU
	Mode        string
	MIG         *migResult
}

// migResult has what was asked about MIG, and nothing else.
type migResult struct {
	Mode      nvml.MIGMode
	Profiles  []nvml.MIGProfile
	Instances []nvml.MIGInstance
	// Made is the number of the GPU instance that was made, and Compute the compute instance.
	Made    int
	Compute nvml.MIGCompute
}

// fault is an error on its way from one process to another.
type fault struct {
	Text string
	// Kind is the index in kinds, -1 for none of them.
	Kind int
}

// kinds are the errors by which callers decide, the most special first.
var kinds = []error{
	nvml.ErrLost, nvml.ErrVanished, nvml.ErrReset, nvml.ErrNotSupported,
	nvml.ErrInUse, nvml.ErrNoRoom, nvml.ErrNotFound, nvml.ErrDenied, nvml.ErrNoMIG, nvml.ErrResult, nvml.ErrDriver,
}

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
