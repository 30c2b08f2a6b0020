package nri

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/divvy-gpu/divvy/internal/edits"
)

// adjustment renders edits of a container. It is pure.
func adjustment(e edits.Edits) (*api.ContainerAdjustment, error) {
	if len(e.Binds) > 0 {
		return nil, fmt.Errorf("a container cannot have host files bound over each other")
	}
	out := &api.ContainerAdjustment{}
	for _, m := range e.Mounts {
		if !filepath.IsAbs(m.Source) || !filepath.IsAbs(m.Target) {
			return nil, fmt.Errorf("mount of %q at %q: paths must be absolute", m.Source, m.Target)
		}
		out.AddMount(&api.Mount{Source: m.Source, Destination: m.Target, Type: "bind", Options: slices.Clone(m.Options)})
	}
	for _, v := range e.Env {
		if v.Prepend || v.Name == "" || strings.ContainsAny(v.Name, "=\x00") {
			return nil, fmt.Errorf("the variable %q cannot be set in a container", v.Name)
		}
		out.AddEnv(v.Name, v.Value)
	}
	for _, d := range e.Devices {
		out.AddDevice(&api.LinuxDevice{Path: d.Path, Type: "c", Major: int64(d.Major), Minor: int64(d.Minor)})
	}
	if len(e.Hooks) > 0 {
		hooks := &api.Hooks{}
		for _, h := range e.Hooks {
			when := &hooks.CreateContainer
			if h.Outside {
				when = &hooks.CreateRuntime
			}
			*when = append(*when, &api.Hook{Path: h.Path, Args: slices.Clone(h.Args)})
		}
		out.AddHooks(hooks)
	}
	return out, nil
}
