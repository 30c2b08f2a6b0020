package slice

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/driver"
)

// A driver that changes for the worse under an agent is refused to the next tenant, by name, and taken
// again when it is whole.
func TestDriverChangesUnderTheAgent(t *testing.T) {
	root := t.TempDir()
	cuda := filepath.Join(root, "usr/lib64/libcuda.so.1")
	for _, library := range driver.Libraries {
		object(t, filepath.Join(filepath.Dir(cuda), string(library)), "")
	}
	b := New(Options{Tenants: t.TempDir(), Tree: tree(t), Inventory: two{"550.54.15"}, Finder: driver.Finder{Root: root}})
	image, err := os.ReadFile(cuda)
	if err != nil {
		t.Fatal(err)
	}
	version := filepath.Join(root, "proc/driver/nvidia/version")
	if err := os.MkdirAll(filepath.Dir(version), 0o755); err != nil {
		t.Fatal(err)
	}
	versioned := filepath.Join(filepath.Dir(cuda), "libcuda.so.550.54.15")
	well := func() error { return os.WriteFile(cuda, image, 0o644) }
	for _, c := range []struct {
		name   string
		change func() error
		says   string // "" if the driver is well
	}{
		{"as it was", well, ""},
		{"half of it", func() error { return os.WriteFile(cuda, image[:len(image)/2], 0o644) }, cuda},
		{"written again", well, ""},
		{"another release", func() error {
			return errors.Join(os.WriteFile(version, []byte("NVRM version: NVIDIA UNIX x86_64 Kernel Module  560.35.03  x\n"), 0o644),
				os.Rename(cuda, versioned), os.Symlink(filepath.Base(versioned), cuda))
		}, versioned + " is of release 550.54.15; expected 560.35.03"},
		{"the module loaded again", func() error {
			return os.WriteFile(version, []byte("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  x\n"), 0o644)
		}, ""},
		{"the module of an update", func() error {
			return os.WriteFile(version, []byte("NVRM version: NVIDIA UNIX x86_64 Kernel Module  560.35.03  x\n"), 0o644)
		}, "expected 560.35.03"},
	} {
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		// The tenant's own plan, the container's, and the agent's health.
		_, planned := b.Plan(tenant(backend.LayerNamespace))
		_, contained := b.Plan(tenant(backend.LayerContainer))
		for what, err := range map[string]error{"a tenant": planned, "a container": contained, "health": b.Health(t.Context())} {
			switch {
			case c.says == "" && errors.Is(err, driver.ErrUnusable):
				t.Errorf("%s, %s: %v", c.name, what, err)
			case c.says != "" && (!errors.Is(err, driver.ErrUnusable) || !strings.Contains(err.Error(), c.says)):
				t.Errorf("%s, %s: %v, want %q", c.name, what, err, c.says)
			}
		}
	}
}
