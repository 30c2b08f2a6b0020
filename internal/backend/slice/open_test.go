package slice

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/edits"
)

// Who has a GPU without a share finds the driver's own libraries where every loader looks, and nothing of ours.
func TestOpen(t *testing.T) {
	d := driverView{found: nativeDriver(), devices: []edits.Device{{Path: "/dev/nvidia0", Source: "/dev/nvidia0", Major: 195}},
		files: []edits.Mount{{Source: "/usr/bin/nvidia-smi", Target: "/usr/bin/nvidia-smi", Options: edits.ReadOnly}}}
	e := machine{}.open(d)
	for _, library := range driver.Libraries {
		for _, folder := range driver.Folders() {
			for _, name := range []string{string(library), library.Bare()} {
				at := slices.IndexFunc(e.Mounts, func(m edits.Mount) bool { return m.Target == filepath.Join(folder, name) })
				if at < 0 || e.Mounts[at].Source != d.found.Chosen[library] || !slices.Equal(e.Mounts[at].Options, edits.ReadOnly) {
					t.Errorf("%s in %s: %+v", name, folder, e.Mounts)
				}
			}
		}
	}
	if !slices.ContainsFunc(e.Mounts, func(m edits.Mount) bool { return m.Target == "/usr/bin/nvidia-smi" }) || len(e.Devices) != 1 || len(e.Hooks) != 0 {
		t.Errorf("%+v", e)
	}
	if slices.ContainsFunc(e.Mounts, func(m edits.Mount) bool { return strings.HasPrefix(m.Target, edits.ShareDir) }) {
		t.Errorf("something of a share is in %+v", e.Mounts)
	}
	if slices.ContainsFunc(e.Env, func(v edits.Env) bool { return v.Name == "DIVVY_SIMGPU" }) {
		t.Errorf("a real machine is simulated: %v", e.Env)
	}
	simulated := machine{Instance: "/run/divvy/simgpu/lab"}.open(driverView{found: simulatedDriver()})
	if !slices.Contains(simulated.Env, edits.Env{Name: "DIVVY_SIMGPU", Value: "/run/divvy/simgpu/lab"}) {
		t.Errorf("a simulated machine is not found by %v", simulated.Env)
	}
}
