package binding

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/test/bench/figure"
	"github.com/divvy-gpu/divvy/test/vm/guest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// agent is one that kills itself after so many steps.
func agent(t *testing.T, path string, steps int) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), acting+"="+path, fmt.Sprintf("%s=%d", last, steps))
	return cmd
}

// An agent that is killed after any step leaves what the next one puts back: all drivers and overrides are as before.
func TestKilledAfterEveryStep(t *testing.T) {
	guest.Require(t)
	guest.Function(machine.Accelerator).Bind(t, "nvidia")
	before := snapshot(t)
	wrong, steps := 0, 0
	for whole := false; !whole; steps++ {
		path := fileName(t)
		said, err := agent(t, path, steps).CombinedOutput()
		if whole = err == nil; !whole && !strings.Contains(err.Error(), "killed") {
			t.Fatalf("after %d steps the agent says %s: %v", steps, said, err)
		}
		next := open(t, path, nil)
		left, err := next.Recover(t.Context())
		if err != nil || len(left) > 0 {
			t.Errorf("after %d steps: %v, %v", steps, left, err)
		}
		if left, err := next.Release(t.Context(), "ada"); err != nil || len(left) > 0 {
			t.Errorf("after %d steps: %v, %v", steps, left, err)
		}
		if after := snapshot(t); after != before || len(next.Entries()) > 0 {
			wrong++
			t.Errorf("after %d steps there is\n%s, want\n%s; the book has %v", steps, after, before, next.Entries())
		}
		next.Close()
	}
	if steps < 10 {
		t.Errorf("the agent made %d steps alone", steps)
	}
	figure.Tell(t, figure.Figure{ID: "vm.crash", Case: "bind and undo", Values: []float64{float64(wrong)}, Note: fmt.Sprintf("an agent killed after each of %d steps of binding a group of two functions and of undoing that", steps-1)})
}
