package cli

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/gpulock"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// A system agent that serves in another run directory is not said to be silent.
func TestAgentOfAnotherRunDirectory(t *testing.T) {
	for dir, want := range map[string]string{"/elsewhere": "serves in another run directory, /elsewhere", "": "does not answer in " + rundir.System, rundir.System: "does not answer in " + rundir.System} {
		agent := exec.Command("sleep", "600")
		agent.Env = []string{"HOME=/"}
		if dir != "" {
			agent.Env = append(agent.Env, rundir.Variable+"="+dir)
		}
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = agent.Process.Kill()
			_ = agent.Wait() // its status is that of the signal
		})
		for deadline := time.Now().Add(time.Minute); rundirOf(agent.Process.Pid) != dir && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond) // exec(2) sets the environment after it closed the pipe that Start waits for
		}
		found, next := unanswering(gpulock.Holder{UUID: "GPU-0", PID: agent.Process.Pid, System: true})
		if !strings.Contains(found, want) || next == "" {
			t.Errorf("%q: found %q, next %q, want %q", dir, found, next, want)
		}
	}
}

// One share of yours uses a GPU; two use one.
func TestAwaySaysHowManyShares(t *testing.T) {
	for yours, want := range map[int]string{0: "0 of yours use a GPU", 1: "1 of yours uses a GPU", 2: "2 of yours use a GPU"} {
		if got := (absence{Reason: "away", Yours: &yours, Others: new(5)}).text(); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
