package slice

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// two is a machine with two GPUs of one model and one of another.
type two struct{ version string }

func (m two) Version() nvml.Version { return nvml.Version{Driver: m.version} }
func (m two) GPUs() ([]nvml.GPU, error) {
	return []nvml.GPU{{Index: 0, UUID: "GPU-0", Name: "A"}, {Index: 1, UUID: "GPU-1", Name: "A"}, {Index: 2, UUID: "GPU-2", Name: "B"}}, nil
}

// probing is an installation whose divvy-probe is this script. Each run adds a
// line with its arguments to the file that is returned.
func probing(t *testing.T, script string) (o Options, runs func() []string) {
	t.Helper()
	root := t.TempDir()
	for _, library := range driver.Libraries {
		object(t, filepath.Join(root, "usr/lib64", string(library)), "")
	}
	tree := install.Tree(t.TempDir())
	program, log := tree.Program("divvy-probe"), filepath.Join(t.TempDir(), "runs")
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"$@\" >>"+log+"\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	o = Options{
		State: t.TempDir(), Tree: tree, Inventory: two{"550.1"}, Finder: driver.Finder{Root: root}, Log: slog.New(slog.DiscardHandler),
	}
	return o, func() []string {
		data, err := os.ReadFile(log)
		if err != nil {
			return nil
		}
		return strings.Split(strings.TrimSpace(string(data)), "\n")
	}
}

// Each model is measured once, and not again by the next agent, until the
// driver is another.
func TestContextsAreMeasuredOnce(t *testing.T) {
	o, runs := probing(t, `echo '{"context_bytes": 42000, "method": "process"}'`)
	for range 2 {
		gpus, err := New(o).Discover(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, gpu := range gpus {
			if gpu.ContextBytes != 42000 {
				t.Errorf("GPU %+v", gpu)
			}
		}
	}
	got := runs()
	if len(got) != 2 || !strings.HasSuffix(got[0], "libcuda.so.1 "+o.Finder.Root+"/usr/lib64/libnvidia-ml.so.1 GPU-0") || !strings.HasSuffix(got[1], "GPU-2") {
		t.Errorf("runs %q", got)
	}
	o.Inventory = two{"560.1"}
	if _, err := New(o).Discover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := runs(); len(got) != 4 {
		t.Errorf("runs %q: another driver was not measured", got)
	}
}

// What cannot be measured is assumed, and measured again by the next agent.
func TestContextsThatCannotBeMeasured(t *testing.T) {
	for name, script := range map[string]string{
		"fails":   "exit 1",
		"garbage": "echo lots",
		"nothing": `echo '{"context_bytes": 0}'`,
	} {
		o, runs := probing(t, script)
		for range 2 {
			gpus, err := New(o).Discover(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if gpus[2].ContextBytes != fallbackContext {
				t.Errorf("%s: GPU %+v", name, gpus[2])
			}
		}
		if got := runs(); len(got) != 4 {
			t.Errorf("%s: %d runs, want 4", name, len(got))
		}
	}
}

// An agent that was started in a job cannot open all GPUs. One of the same model tells as
// much.
func TestContextsBesideAHiddenGPU(t *testing.T) {
	o, runs := probing(t, `case $3 in GPU-0) exit 3;; esac; echo '{"context_bytes": 42000}'`)
	gpus, err := New(o).Discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if gpus[0].ContextBytes != fallbackContext || gpus[1].ContextBytes != 42000 || gpus[2].ContextBytes != 42000 {
		t.Errorf("GPUs %+v", gpus)
	}
	if got := runs(); len(got) != 3 {
		t.Errorf("runs %q", got)
	}
}

// A library that says that it is not this machine's driver serves nobody.
func TestDriverOfAnotherMachine(t *testing.T) {
	o, _ := probing(t, `echo "$1 says that it is a stub" >&2; exit 4`)
	if gpus, err := New(o).Discover(t.Context()); !errors.Is(err, driver.ErrUnusable) || !strings.Contains(err.Error(), "libcuda.so.1 says that it is a stub; expected") {
		t.Errorf("%+v, %v", gpus, err)
	}
}

func TestHealth(t *testing.T) {
	o, _ := probing(t, "")
	o.Tree = tree(t)
	if err := New(o).Health(t.Context()); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(o.Tree.Library("libcuda.so.1"), []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := New(o).Health(t.Context()); err == nil || !strings.Contains(err.Error(), "incomplete installation") {
		t.Errorf("%v", err)
	}
}

func TestUndoStaysAmongTenants(t *testing.T) {
	o, _ := probing(t, "")
	o.Tenants = filepath.Join(t.TempDir(), "tenants")
	b := New(o)
	elsewhere := t.TempDir()
	plan := &backend.Plan{Dir: elsewhere}
	if err := b.Undo(t.Context(), backend.Tenant{Dir: plan.Dir}); err == nil {
		t.Error("a folder that is no tenant's was removed")
	}
	if _, err := os.Stat(elsewhere); err != nil {
		t.Error(err)
	}
}
