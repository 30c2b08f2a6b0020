// Package cdi renders edits as specifications of the Container Device Interface,
// which container runtimes apply, and keeps them in a directory that runtimes read.
package cdi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/divvy-gpu/divvy/internal/edits"
)

// When a hook runs (OCI runtime specification, "POSIX-platform Hooks"): in the container's
// mount namespace before its root is changed, or in the runtime's.
const (
	createContainer = "createContainer"
	createRuntime   = "createRuntime"
)

// ErrSpec marks edits that no specification can express.
var ErrSpec = errors.New("cannot be expressed in CDI")

// Spec renders one device for each name. It is pure. It uses the lowest version that
// has all that is needed, because old runtimes ignore specifications of newer
// versions.
func Spec(kind string, devices map[string]edits.Edits) (*specs.Spec, error) {
	vendor, class := parser.ParseQualifier(kind)
	if err := errors.Join(parser.ValidateVendorName(vendor), parser.ValidateClassName(class)); err != nil {
		return nil, fmt.Errorf("kind %q: %w: %w", kind, ErrSpec, err)
	}
	spec := &specs.Spec{Kind: kind}
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		if err := parser.ValidateDeviceName(name); err != nil {
			return nil, fmt.Errorf("device %q: %w: %w", name, ErrSpec, err)
		}
		rendered, err := render(devices[name])
		if err != nil {
			return nil, fmt.Errorf("device %q: %w", name, err)
		}
		spec.Devices = append(spec.Devices, specs.Device{Name: name, ContainerEdits: rendered})
	}
	if len(spec.Devices) == 0 {
		return nil, fmt.Errorf("%w: no devices", ErrSpec)
	}
	version, err := specs.MinimumRequiredVersion(spec)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	spec.Version = version
	return spec, nil
}

func render(e edits.Edits) (specs.ContainerEdits, error) {
	var out specs.ContainerEdits
	if len(e.Binds) > 0 {
		return out, fmt.Errorf("%w: files of the host bound over each other", ErrSpec)
	}
	for _, v := range e.Env {
		// A specification sets a variable whatever the image has.
		if v.Prepend || v.Name == "" || strings.ContainsAny(v.Name, "=\x00") {
			return out, fmt.Errorf("%w: the variable %q", ErrSpec, v.Name)
		}
		out.Env = append(out.Env, v.Name+"="+v.Value)
	}
	for _, d := range e.Devices {
		out.DeviceNodes = append(out.DeviceNodes, &specs.DeviceNode{
			Path: d.Path, HostPath: d.Source, Type: "c", Major: int64(d.Major), Minor: int64(d.Minor), Permissions: "rw",
		})
	}
	for _, m := range e.Mounts {
		if !filepath.IsAbs(m.Source) || !filepath.IsAbs(m.Target) {
			return out, fmt.Errorf("%w: mount of %q at %q: paths must be absolute", ErrSpec, m.Source, m.Target)
		}
		out.Mounts = append(out.Mounts, &specs.Mount{
			HostPath: m.Source, ContainerPath: m.Target, Type: "bind", Options: slices.Clone(m.Options),
		})
	}
	for _, h := range e.Hooks {
		when := createContainer
		if h.Outside {
			when = createRuntime
		}
		out.Hooks = append(out.Hooks, &specs.Hook{HookName: when, Path: h.Path, Args: slices.Clone(h.Args)})
	}
	return out, nil
}

const (
	suffix      = ".json"
	draftSuffix = ".new"
)

// path returns the file of a specification. Names come from claims, so it refuses a
// name that leads out of the directory.
func path(dir, name string) (string, error) {
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\x00") {
		return "", fmt.Errorf("%w: the file name %q", ErrSpec, name)
	}
	return filepath.Join(dir, strings.TrimSuffix(name, suffix)+suffix), nil
}

// Write makes or replaces the specification dir/NAME.json atomically: a runtime
// reads the old one or the new one. It makes the directory if necessary.
func Write(dir, name string, spec *specs.Spec) error {
	file, err := path(dir, name)
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return fmt.Errorf("encode CDI specification: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make CDI directory: %w", err)
	}
	if err := writeDraft(draft(file), append(data, '\n')); err != nil {
		return errors.Join(fmt.Errorf("write CDI specification: %w", err), remove(draft(file)))
	}
	if err := os.Rename(draft(file), file); err != nil {
		return errors.Join(fmt.Errorf("write CDI specification: %w", err), remove(draft(file)))
	}
	return nil
}

// Specification is what a file of the Container Device Interface holds.
type Specification = specs.Spec

// Written reports whether the specification dir/NAME.json is there as it would be written.
func Written(dir, name string, spec *Specification) bool {
	file, err := path(dir, name)
	if err != nil {
		return false
	}
	data, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return false
	}
	present, err := os.ReadFile(file)
	return err == nil && bytes.Equal(present, append(data, '\n'))
}

// draft is the name of a specification while it is written. Runtimes ignore it,
// because they read only files that end in .json or .yaml.
func draft(file string) string {
	return file + draftSuffix
}

func writeDraft(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	// Whatever the umask: runtimes may run as another user.
	return errors.Join(err, file.Chmod(0o644), file.Sync(), file.Close())
}

// Remove deletes a specification. It is no error if there is none.
func Remove(dir, name string) error {
	file, err := path(dir, name)
	if err != nil {
		return err
	}
	return errors.Join(remove(file), remove(draft(file)))
}

func remove(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove CDI specification: %w", err)
	}
	return nil
}

// List returns, sorted, the names of the specifications in dir that begin with
// prefix, including those that an interrupted Write left unfinished.
func List(dir, prefix string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list CDI specifications: %w", err)
	}
	var names []string
	for _, entry := range entries {
		name, ours := strings.CutSuffix(strings.TrimSuffix(entry.Name(), draftSuffix), suffix)
		if ours && strings.HasPrefix(name, prefix) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}
