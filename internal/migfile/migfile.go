// Package migfile reads and writes files of MIG layouts in the format of NVIDIA's mig-parted, and works out what a GPU
// lacks of a layout. It changes nothing.
//
//	version: v1
//	mig-configs:
//	  small:
//	  - devices: all
//	    mig-enabled: true
//	    mig-devices: {1g.10gb: 7}
//
// A file has configurations by name. Each is a list of entries, and an entry says what the GPUs have that it names. The
// format is that of mig-parted's README (github.com/NVIDIA/mig-parted).
package migfile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/internal/strictyaml"
)

// ErrFile marks every error of a file.
var ErrFile = errors.New("invalid file of MIG layouts")

// Bounds of a file.
const (
	// MaxBytes is its size.
	MaxBytes = strictyaml.MaxBytes
	// mostDevices is how many instances of a profile an entry may ask for; no GPU has more than 7.
	mostDevices = 64
)

// File is a file of layouts.
type File struct {
	// Configs are lists of entries by the name of their configuration.
	Configs map[string][]Entry
}

// Entry is what some GPUs have.
type Entry struct {
	// Filter are PCI device ids with the vendor's in the low half, such as 0x233010DE. Empty, it takes all GPUs.
	Filter []uint32
	// All takes every GPU; else Devices are the indexes of those that it takes.
	All     bool
	Devices []int
	// Enabled is the MIG mode.
	Enabled bool
	// Instances are how many instances there are of each profile.
	Instances map[string]int
}

// GPU is a GPU that entries name.
type GPU struct {
	Index int
	// DeviceID is as in [Entry].
	DeviceID uint32
}

func (e *Entry) takes(g GPU) bool {
	return (e.All || slices.Contains(e.Devices, g.Index)) && (len(e.Filter) == 0 || slices.Contains(e.Filter, g.DeviceID))
}

// Names are those of the configurations, in order.
func (f *File) Names() []string { return slices.Sorted(maps.Keys(f.Configs)) }

// Select returns the entry of each GPU in a configuration, by index. GPUs that no entry takes are left out, and stay as
// they are. An entry that takes none of the GPUs is an error, and so are two that take one.
func (f *File) Select(name string, gpus []GPU) (map[int]Entry, error) {
	entries, ok := f.Configs[name]
	if !ok {
		return nil, fmt.Errorf("%w: no configuration %q: it has %s", ErrFile, name, strings.Join(f.Names(), ", "))
	}
	chosen := map[int]Entry{}
	for i, e := range entries {
		for _, index := range e.Devices {
			if !slices.ContainsFunc(gpus, func(g GPU) bool { return g.Index == index }) {
				return nil, fmt.Errorf("%w: %s[%d]: this machine has no GPU %d", ErrFile, name, i, index)
			}
		}
		for _, g := range gpus {
			if !e.takes(g) {
				continue
			}
			if _, twice := chosen[g.Index]; twice {
				return nil, fmt.Errorf("%w: %s[%d]: an entry before it takes GPU %d too", ErrFile, name, i, g.Index)
			}
			chosen[g.Index] = e
		}
	}
	if len(chosen) == 0 && len(gpus) > 0 {
		return nil, fmt.Errorf("%w: %s: its filters take no GPU of this machine", ErrFile, name)
	}
	return chosen, nil
}

// text is a file as YAML has it.
type text struct {
	Version string               `yaml:"version"`
	Configs map[string]yaml.Node `yaml:"mig-configs"`
	// Hooks belong to mig-parted's own programs.
	Hooks yaml.Node `yaml:"hooks,omitempty"`
}

type textEntry struct {
	Filter  yaml.Node      `yaml:"device-filter"`
	Devices yaml.Node      `yaml:"devices"`
	Enabled *bool          `yaml:"mig-enabled"`
	Devs    map[string]int `yaml:"mig-devices"`
}

// Parse reads a file strictly: what it does not know is an error. The error joins all faults.
func Parse(content []byte) (*File, error) {
	root, fault := strictyaml.Document(content)
	if fault == nil {
		fault = fieldsOf(root, "version", "mig-configs", "hooks")
	}
	if fault != nil {
		return nil, fmt.Errorf("%w: %s", ErrFile, placed(fault))
	}
	var t text
	if err := root.Decode(&t); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrFile, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	switch {
	case t.Version != "v1":
		return nil, fmt.Errorf("%w: version: %q is not v1", ErrFile, t.Version)
	case !t.Hooks.IsZero():
		return nil, fmt.Errorf("%w: line %d: hooks: they are programs that mig-parted starts, and Divvy starts none: leave them out", ErrFile, t.Hooks.Line)
	case len(t.Configs) == 0:
		return nil, fmt.Errorf("%w: mig-configs: it has none", ErrFile)
	}
	f := &File{Configs: map[string][]Entry{}}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(t.Configs)) {
		node := t.Configs[name]
		entries, err := entriesOf(name, &node)
		f.Configs[name], faults = entries, append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return f, nil
}

// fieldsOf returns the first field of a mapping that is not known.
func fieldsOf(node *yaml.Node, known ...string) *strictyaml.Fault {
	if node.Kind != yaml.MappingNode {
		return &strictyaml.Fault{Line: node.Line, Problem: "must have fields such as " + known[0]}
	}
	for i := 0; i < len(node.Content); i += 2 {
		if key := node.Content[i]; !slices.Contains(known, key.Value) {
			return &strictyaml.Fault{Line: key.Line, Problem: fmt.Sprintf("unknown field %q: use %s", key.Value, strings.Join(known, ", "))}
		}
	}
	return nil
}

// placed is a fault with its line, for errors that name the file elsewhere.
func placed(f *strictyaml.Fault) string {
	if f.Line == 0 {
		return f.Problem
	}
	return fmt.Sprintf("line %d: %s", f.Line, f.Problem)
}

func entriesOf(name string, node *yaml.Node) (entries []Entry, err error) {
	if node.Kind != yaml.SequenceNode || len(node.Content) == 0 {
		return nil, fmt.Errorf("%w: line %d: %s: must be a list of entries", ErrFile, node.Line, name)
	}
	var faults []error
	for i, one := range node.Content {
		e, err := entryOf(one)
		if err != nil {
			faults = append(faults, fmt.Errorf("%w: line %d: %s[%d]: %w", ErrFile, one.Line, name, i, err))
		}
		entries = append(entries, e)
	}
	return entries, errors.Join(faults...)
}

var fields = []string{"devices", "device-filter", "mig-enabled", "mig-devices"}

// profile is a name as the driver writes them: an instance, or a compute instance in one (1c.3g.40gb).
var profile = regexp.MustCompile(`^([1-9]c\.)?[1-9]g\.[1-9][0-9]{0,3}gb([+-][a-z]+(\.[a-z]+)?)*$`)

func entryOf(node *yaml.Node) (e Entry, err error) {
	if fault := fieldsOf(node, fields...); fault != nil {
		return e, errors.New(fault.Problem)
	}
	var t textEntry
	if err := node.Decode(&t); err != nil {
		return e, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if t.Enabled == nil {
		return e, errors.New("mig-enabled: give true or false")
	}
	e.Enabled, e.Instances = *t.Enabled, t.Devs
	return e, cmp.Or(e.filter(&t.Filter), e.devices(&t.Devices), e.instances())
}

// filter reads one device id or a list of them.
func (e *Entry) filter(node *yaml.Node) error {
	var texts []string
	switch {
	case node.IsZero():
		return nil
	case node.Kind == yaml.ScalarNode:
		texts = []string{node.Value}
	default:
		if err := node.Decode(&texts); err != nil || len(texts) == 0 {
			return errors.New("device-filter: must be a device id or a list of them")
		}
	}
	for _, text := range texts {
		id, err := strconv.ParseUint(text, 0, 32)
		if err != nil || id == 0 {
			return fmt.Errorf("device-filter: %q is no device id such as 0x233010DE", text)
		}
		e.Filter = append(e.Filter, uint32(id))
	}
	return nil
}

// devices reads the word all or a list of indexes.
func (e *Entry) devices(node *yaml.Node) error {
	switch {
	case node.Kind == yaml.ScalarNode && node.Value == "all":
		e.All = true
		return nil
	case node.Kind == yaml.SequenceNode && len(node.Content) > 0:
	default:
		return errors.New("devices: must be all or a list of indexes, such as [0, 1]")
	}
	for _, one := range node.Content {
		index, err := strconv.Atoi(one.Value)
		if err != nil || index < 0 || one.Kind != yaml.ScalarNode {
			return fmt.Errorf("devices: %q is no index of a GPU", one.Value)
		}
		if slices.Contains(e.Devices, index) {
			return fmt.Errorf("devices: names GPU %d twice", index)
		}
		e.Devices = append(e.Devices, index)
	}
	return nil
}

func (e *Entry) instances() error {
	for _, name := range slices.Sorted(maps.Keys(e.Instances)) {
		n := e.Instances[name]
		switch {
		case !profile.MatchString(name):
			return fmt.Errorf("mig-devices: %q is no profile such as 1g.10gb", name)
		case strings.Contains(name, "c."):
			return fmt.Errorf("mig-devices: %s is a part of an instance: Divvy makes whole ones, and divides them for shares", name)
		case n < 0 || n > mostDevices:
			return fmt.Errorf("mig-devices: %s: %d instances: give 0 to %d", name, n, mostDevices)
		case n > 0 && !e.Enabled:
			return fmt.Errorf("mig-devices: %s: a GPU has no instances while mig-enabled is false", name)
		case n == 0:
			delete(e.Instances, name)
		}
	}
	return nil
}
