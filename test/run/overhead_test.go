package run

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// lateProgram builds the program whose overhead grows without a call that tells of it.
func lateProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "late")
	if out, err := exec.Command("cc", "-O1", "-I../../lib", "-o", program, "../../lib/cuda/test/late.c", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("cc: %v: %s", err, out)
	}
	return program
}

// Code that is loaded late counts also in a pid namespace, in which a process does not know its number on the driver's
// list. It takes the share past its limit, which goes on. The stacks of a kernel are charged before, and once.
func TestOverheadInPidNamespaces(t *testing.T) {
	program := lateProgram(t)
	h := newHostOf(t, "a100-80g", "--set", "gpu.code=7Mi").namespaces()
	alone := []string{"unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", program, "40", "1"}
	s := h.hold([]string{"--memory", "900Mi", "--name", "late"}, slices.Concat([]string{"sh", "-c", `"$@" & read x; kill -KILL $!; wait`, "sh"}, alone)...)
	const stacks = 1024 * 108 * 2048 // of 2 KiB, where contexts begin with 1 KiB
	var shown control.Share
	var truth, all uint64
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("shown %+v, the driver took %d, %d in all", shown, truth, all)
		}
	})
	// The last kernel takes the share past its limit, also before the agent has looked at what the ones before it took.
	h.eventually("the overhead is known, and past the limit", func() bool {
		late, ok := h.tenant("late")
		if !ok {
			return false
		}
		shown, truth, all = late.Shares[0], 0, 0
		for _, p := range h.report().Processes {
			for _, gpu := range p.GPUs {
				truth, all = truth+gpu.Context, all+gpu.Used
			}
		}
		return shown.Past != "" && shown.Used == all && shown.Overhead == truth-stacks
	})
	if shown.Measured == 0 || len(shown.Process) != 1 {
		t.Errorf("shown %+v", shown)
	}
	if text := h.ok("ls", "--simgpu", "m"); !strings.Contains(text, "past its limit by overhead alone") {
		t.Errorf("%s", text)
	}
	s.end()
}

// The next allocation of a share that is past its limit by overhead is refused.
func TestOverheadRefusesTheNextAllocation(t *testing.T) {
	program := lateProgram(t)
	h := newHostOf(t, "a100-80g", "--set", "gpu.code=7Mi")
	if o := h.run("--memory", "900Mi", "--", program, "40", "1", "busy"); o.status != 1 || !strings.Contains(o.err, "cuMemAlloc_v2: 2") {
		t.Errorf("exit status %d: %s", o.status, o.err)
	}
}
