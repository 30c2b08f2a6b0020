package main

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A share is stopped when all its processes are, and no earlier.
func TestUntilStopped(t *testing.T) {
	var pids []int
	for range 2 {
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		pids = append(pids, cmd.Process.Pid)
	}
	stop := func(pid int) {
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Wait4(pid, nil, unix.WUNTRACED, nil); err != nil {
			t.Fatal(err)
		}
	}
	a := &attacker{pid: pids[0], passed: time.Now().UnixNano()}
	looks := 0
	share := func() []int {
		switch looks++; looks {
		case 1:
			if allStopped(pids) || allStopped(nil) {
				t.Error("it is stopped while another process runs, or without processes")
			}
		case 2:
			stop(pids[1])
		}
		return pids
	}
	stop(pids[0])
	if took := a.untilStopped(t.Context(), share); took >= never || looks < 2 {
		t.Errorf("it took %.1f s and %d looks", took, looks)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	a.pid = os.Getpid()
	if took := a.untilStopped(over, share); took != never {
		t.Errorf("a program that runs was stopped after %.1f s", took)
	}
}
