package mig

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/process"
)

// A GPU has no users for sure only where nobody but the agent and its helpers was cut off.
func TestLoneTellsWhoWasCutOff(t *testing.T) {
	cmd := exec.Command("cat")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		input.Close()
		_ = cmd.Wait() // it ends when its input does
	}()
	var ours []process.ID
	for _, pid := range []int{os.Getpid(), cmd.Process.Pid} {
		id, err := process.Find(pid)
		if err != nil {
			t.Fatal(err)
		}
		ours = append(ours, id)
	}
	other, err := process.Find(os.Getppid())
	if err != nil {
		t.Fatal(err)
	}
	if names, err := others(ours, ours); err != nil || len(names) != 0 {
		t.Errorf("the agent and a helper, also cut off: %v, %v", names, err)
	}
	if names, err := others(ours, []process.ID{other}); err == nil || !strings.Contains(err.Error(), nameOf(other)) {
		t.Errorf("somebody else is cut off: %v, %v", names, err)
	}
	if names, err := others([]process.ID{other}, []process.ID{other}); err != nil || !slices.Equal(names, []string{nameOf(other)}) {
		t.Errorf("somebody else has it: %v, %v", names, err)
	}
	ended := process.ID{PID: other.PID, Start: other.Start + 1}
	if names, err := others([]process.ID{ended}, []process.ID{ended}); err != nil || len(names) != 0 {
		t.Errorf("one that has ended: %v, %v", names, err)
	}
}
