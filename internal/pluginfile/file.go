package pluginfile

import (
	"errors"
	"fmt"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/strictyaml"
)

// MaxBytes bounds a file, as Kubernetes bounds a ConfigMap.
const MaxBytes = strictyaml.MaxBytes

// ErrFile marks every error of a file.
var ErrFile = errors.New("invalid device-plugin file")

// Fault is one thing wrong with a file; each is an [ErrFile].
type Fault = strictyaml.Fault

// Outcome is what becomes of a key.
type Outcome string

// The outcomes.
const (
	Works    Outcome = "works"
	NoEffect Outcome = "no effect"
	Refused  Outcome = "refused"
)

// Note says what became of one key.
type Note struct {
	Line  int    `json:"line"`
	Field string `json:"field"`
	// Value is as the file has it, on one line.
	Value   string  `json:"value"`
	Outcome Outcome `json:"outcome"`
	// Text says what the key becomes, or why it has no effect or is refused.
	Text string `json:"text"`
}

// Names of resources.
const (
	// GPUResource is a GPU, or a replica of one that is not renamed.
	GPUResource = "nvidia.com/gpu"
	// SharedResource is a replica under its own name.
	SharedResource = GPUResource + SharedSuffix
	// SharedSuffix ends the names of replicas that are renamed.
	SharedSuffix = ".shared"
	// MIGPrefix begins the name of MIG devices of one profile.
	MIGPrefix = "nvidia.com/mig-"
)

// Strategy says how MIG devices are counted.
type Strategy string

// The strategies.
const (
	// StrategyNone counts none.
	StrategyNone Strategy = "none"
	// StrategySingle counts them as GPUs, where all GPUs of a node are divided into devices of one profile.
	StrategySingle Strategy = "single"
	// StrategyMixed counts those of each profile under a name of their own.
	StrategyMixed Strategy = "mixed"
)

// MIGResource is the name of MIG devices of a profile: the plus sign of 1g.10gb+me, which a name cannot have, is a dot.
func MIGResource(profile string) string { return MIGPrefix + strings.ReplaceAll(profile, "+", ".") }

// Config is what a file says.
type Config struct {
	// Notes are in the order of the file.
	Notes []Note
	// Replicated are the GPUs and MIG devices of which there are replicas, in the order of the file. Every other one is
	// given out whole.
	Replicated []Replicated
	// Strategy is how MIG devices are counted; left out it is none.
	Strategy Strategy
	// DriverRoot is flags.nvidiaDriverRoot; it is empty where the file has none.
	DriverRoot string
	// Packed is true where replicas are to fill a GPU before another one is used.
	Packed bool
	// Labels is true where the file configures GPU feature discovery.
	Labels bool
}

// Replicated says of some GPUs, or MIG devices, how many replicas there are of each.
type Replicated struct {
	// Field is the path of the entry.
	Field string
	// Resource is the name that they have without replicas.
	Resource string
	Backend  v1alpha1.Backend
	Devices  Devices
	// Replicas is 1 to [MaxReplicas], or to [MaxMPSReplicas] with backend mps.
	Replicas int
	// Renamed is true where the name of replicas ends in [SharedSuffix].
	Renamed bool
	// Single is true where a container may ask for one replica alone.
	Single bool
}

// Name is that of the replicas.
func (r *Replicated) Name() string {
	if r.Renamed {
		return r.Resource + SharedSuffix
	}
	return r.Resource
}

// Devices are those of an entry: all, the first Count ones, or listed ones.
type Devices struct {
	Count int
	// List has indexes and whole UUIDs. The index of a MIG device is that of its GPU and its own in it, as 0:1.
	List []string
}

// All is true where every GPU is meant.
func (d Devices) All() bool { return d.Count == 0 && len(d.List) == 0 }

// String writes the devices as the file does.
func (d Devices) String() string {
	switch {
	case d.All():
		return "all"
	case d.Count > 0:
		return fmt.Sprint(d.Count)
	}
	return "[" + strings.Join(d.List, ", ") + "]"
}

// RefusedNotes are those of keys that are refused.
func (c *Config) RefusedNotes() []Note {
	var all []Note
	for _, n := range c.Notes {
		if n.Outcome == Refused {
			all = append(all, n)
		}
	}
	return all
}

// Err joins the refused keys as faults of a file of that name; it is nil where there are none.
func (c *Config) Err(file string) error {
	var all []error
	for _, n := range c.RefusedNotes() {
		all = append(all, &Fault{Kind: ErrFile, File: file, Line: n.Line, Field: n.Field, Problem: "refused: " + n.Text})
	}
	return errors.Join(all...)
}
