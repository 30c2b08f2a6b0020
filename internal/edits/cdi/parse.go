package cdi

import (
	"fmt"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/divvy-gpu/divvy/internal/edits"
)

// parse is the opposite of render. What render does not write is an error.
func parse(from specs.ContainerEdits) (edits.Edits, error) {
	var e edits.Edits
	for _, entry := range from.Env {
		name, value, ok := strings.Cut(entry, "=")
		if !ok {
			return e, fmt.Errorf("%w: the variable %q", ErrSpec, entry)
		}
		e.Env = append(e.Env, edits.Env{Name: name, Value: value})
	}
	for _, d := range from.DeviceNodes {
		if d.Type != "c" || d.Major != int64(uint32(d.Major)) || d.Minor != int64(uint32(d.Minor)) {
			return e, fmt.Errorf("%w: the device node %q", ErrSpec, d.Path)
		}
		e.Devices = append(e.Devices, edits.Device{Path: d.Path, Source: d.HostPath, Major: uint32(d.Major), Minor: uint32(d.Minor)})
	}
	for _, m := range from.Mounts {
		e.Mounts = append(e.Mounts, edits.Mount{Source: m.HostPath, Target: m.ContainerPath, Options: slices.Clone(m.Options)})
	}
	for _, h := range from.Hooks {
		if h.HookName != createContainer && h.HookName != createRuntime {
			return e, fmt.Errorf("%w: the hook %q", ErrSpec, h.HookName)
		}
		e.Hooks = append(e.Hooks, edits.Hook{Path: h.Path, Args: slices.Clone(h.Args), Outside: h.HookName == createRuntime})
	}
	return e, nil
}
