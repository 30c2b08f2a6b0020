package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/divvy-gpu/divvy/internal/edits"
)

// DefaultDir is where every container runtime looks for the specifications of devices that come and go. It does not
// survive a restart of the machine, and neither do shares.
const DefaultDir = "/var/run/cdi"

// sharesPrefix begins the names of the specifications of shares that last; the share's name follows.
const sharesPrefix = "divvy-share-"

var (
	// ErrTaken marks a device that leads elsewhere.
	ErrTaken = errors.New("exists already")
	// ErrNone marks a share without a device.
	ErrNone = errors.New("there is no share for containers of that name")
)

// Shares keeps a device for each of an agent's shares that last. Several agents may use one directory.
type Shares struct {
	// Dir is where the specifications are, and Kind that of the devices.
	Dir, Kind string
}

// Check returns an error for a name that no device can have.
func (s Shares) Check(name string) error {
	if err := parser.ValidateDeviceName(name); err != nil {
		return fmt.Errorf("%q cannot be the name of a container device: use letters, digits, '-', '_' and '.', and end with a letter or digit", name)
	}
	return nil
}

// Write makes or replaces the device of a share. It returns [ErrTaken] if the device leads to the directory of another
// share that is there.
func (s Shares) Write(name string, e edits.Edits) error {
	spec, err := Spec(s.Kind, map[string]edits.Edits{name: e})
	if err != nil {
		return err
	}
	there, err := s.directory(sharesPrefix + name)
	if err == nil && there != directoryOf(spec) && exists(there) {
		return fmt.Errorf("container device %s=%s %w, of another agent's share: choose another name", s.Kind, name, ErrTaken)
	}
	if err := Write(s.Dir, sharesPrefix+name, spec); err != nil {
		return fmt.Errorf("container device %s=%s: %w", s.Kind, name, err)
	}
	return nil
}

// Remove removes the device of a share. That there is none is no error.
func (s Shares) Remove(name string) error { return Remove(s.Dir, sharesPrefix+name) }

// Sweep removes the devices of shares whose directories are not there any more, whichever agent made them.
func (s Shares) Sweep() error {
	names, err := List(s.Dir, sharesPrefix)
	faults := []error{err}
	for _, name := range names {
		there, err := s.directory(name)
		if err == nil && exists(there) {
			continue
		}
		faults = append(faults, Remove(s.Dir, name))
	}
	return errors.Join(faults...)
}

// Read returns the edits of a share's device, as [Shares.Write] got them, or [ErrNone].
func (s Shares) Read(name string) (edits.Edits, error) {
	spec, err := s.read(sharesPrefix + name)
	if errors.Is(err, fs.ErrNotExist) {
		return edits.Edits{}, ErrNone
	}
	if err != nil {
		return edits.Edits{}, err
	}
	for _, d := range spec.Devices {
		if d.Name == name {
			return parse(d.ContainerEdits)
		}
	}
	return edits.Edits{}, fmt.Errorf("read CDI specification: it has no device %q", name)
}

func (s Shares) read(name string) (*specs.Spec, error) {
	file, err := path(s.Dir, name)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read CDI specification: %w", err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, fmt.Errorf("read CDI specification: %w", err)
	}
	for _, d := range spec.Devices {
		e := d.ContainerEdits
		if slices.Contains(e.DeviceNodes, nil) || slices.Contains(e.Mounts, nil) || slices.Contains(e.Hooks, nil) {
			return nil, fmt.Errorf("read CDI specification: %w: an entry of device %q is null", ErrSpec, d.Name)
		}
	}
	return &spec, nil
}

// directory is that of the share to which a specification leads, "" if it leads to none.
func (s Shares) directory(name string) (string, error) {
	spec, err := s.read(name)
	if err != nil {
		return "", err
	}
	return directoryOf(spec), nil
}

func directoryOf(spec *specs.Spec) string {
	for _, d := range spec.Devices {
		for _, m := range d.ContainerEdits.Mounts {
			if m.ContainerPath == edits.ShareDir {
				return m.HostPath
			}
		}
	}
	return ""
}

func exists(dir string) bool {
	if dir == "" {
		return false
	}
	_, err := os.Lstat(dir)
	return !errors.Is(err, fs.ErrNotExist)
}
