package process

import (
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/process/processtest"
)

// The first process of a pid namespace ends only when all others in it were waited for. Until then it lives, and is ending.
func TestEnding(t *testing.T) {
	first := processtest.Start(t, syscall.CLONE_NEWPID, "")
	id, err := Find(first.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if id.Ending() {
		t.Error("it is ending from the begin")
	}
	parent := exec.Command("nsenter", "--target", strconv.Itoa(id.PID), "--pid", "sleep", "1000")
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = parent.Process.Signal(syscall.SIGCONT) // it waits for its child then
		_ = parent.Process.Kill()
		_ = parent.Wait()
	})
	var child ID
	until(t, "there is a child", func() bool {
		for _, child = range Descendants(parent.Process.Pid) {
			return Command(child.PID) == "sleep"
		}
		return false
	})
	if err := parent.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until(t, "its parent is stopped", func() bool { return Stopped(parent.Process.Pid) })
	if err := id.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the child has ended", func() bool { return !child.Alive() })
	until(t, "the first process is ending", id.Ending)
	if !id.Alive() {
		t.Error("the first process has ended before its child was waited for")
	}
}

func TestPending(t *testing.T) {
	const status = "Name:\tx\nThreads:\t2\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\nSigBlk:\t0000000000000100\n"
	if !pending([]byte(status), "SigPnd") || pending([]byte(status), "ShdPnd") || pending([]byte("SigPnd:"), "SigPnd") {
		t.Error("SIGKILL is not where it is")
	}
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
