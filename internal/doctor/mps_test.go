package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/mps"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// Daemons that no agent serves, and what is left of them, are told of, and nothing is where there is none.
func TestDaemons(t *testing.T) {
	machine, err := simgpu.Load("t4")
	if err != nil {
		t.Fatal(err)
	}
	instance, err := simgpu.NewStore(t.TempDir(), installtest.Tree(t)).Start(t.Context(), "m", machine, "m")
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp("", "mps") // the directory of a test may have a name too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	left := mps.DirsOf(filepath.Join(root, "mps"), "GPU-00112233-4455-6677-8899-aabbccddeeff")
	daemons := []mps.Daemon{
		{UUID: "GPU-0", Dirs: left, Program: filepath.Join(instance.Dir, mps.ControlProgram)},
		{UUID: "GPU-0", Dirs: mps.Dirs{Pipe: filepath.Join(root, mps.DefaultPipe), Log: filepath.Join(root, "log")}, Program: filepath.Join(instance.Dir, mps.ControlProgram)},
		{UUID: "GPU-0", Dirs: mps.Dirs{Pipe: filepath.Join(root, "elsewhere"), Log: filepath.Join(root, "otherlog")}, Program: filepath.Join(instance.Dir, mps.ControlProgram)},
	}
	t.Cleanup(func() {
		for _, d := range daemons {
			err = errors.Join(err, d.End(context.WithoutCancel(t.Context())))
		}
		if err := errors.Join(err, os.RemoveAll(root)); err != nil {
			t.Error(err)
		}
	})
	host := Host{Root: root}
	foreign := func() []Check { // of the test's own: others may run on the machine
		return slices.DeleteFunc(host.foreignDaemons(), func(c Check) bool { return !strings.Contains(c.Found, root) })
	}
	if checks := append(LeftDaemons(root), foreign()...); len(checks) != 0 {
		t.Errorf("without daemons: %+v", checks)
	}
	for i, of := range []func() []Check{func() []Check { return LeftDaemons(root) }, foreign, foreign} {
		id, err := daemons[i].Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		checks := of()
		if i == 2 { // the other one runs still
			checks = slices.DeleteFunc(checks, func(c Check) bool { return !strings.Contains(c.Found, "elsewhere") })
		}
		if len(checks) != 1 || checks[0].Status != Warn || !strings.Contains(checks[0].Found, "process "+strconv.Itoa(id.PID)) || checks[0].Next == "" {
			t.Errorf("with daemon %d: %+v", i, checks)
		}
	}
	if err := daemons[0].End(t.Context()); err != nil {
		t.Fatal(err)
	}
	if checks := LeftDaemons(root); len(checks) != 1 || !strings.Contains(checks[0].Found, left.Pipe+" is left of") {
		t.Errorf("its directory: %+v", checks)
	}
	if err := left.Remove(); err != nil {
		t.Fatal(err)
	}
	if checks := LeftDaemons(root); len(checks) != 0 {
		t.Errorf("without its directory: %+v", checks)
	}
}
