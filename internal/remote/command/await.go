package command

import (
	"os/exec"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/process"
)

const (
	// attendMost is how long an attendant may take to end what is left of a command, and itself.
	attendMost = leaveMost + 2*time.Second
	// killMost is how long the kernel may take to end an attendant. One that waits for a file server is left.
	killMost = 2 * time.Second
)

// await waits for an attendant whose line has ended. It is of the command's user, so the command may have stopped it: then this
// process ends what is left. Its status tells nothing.
func await(attendant *exec.Cmd) {
	id, err := process.Find(attendant.Process.Pid)
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = attendant.Wait() // see above
	}()
	if !within(over, attendMost) && err == nil {
		kill(id, over)
	}
}

// kill ends a process that is stopped, after all that descend from it: while it is there, what has lost its parents is its
// child.
func kill(id process.ID, over <-chan struct{}) {
	for most := time.Now().Add(killMost); time.Now().Before(most) && id.Alive(); {
		left := process.Descendants(id.PID)
		if len(left) == 0 {
			break
		}
		for _, one := range left {
			_ = one.Signal(syscall.SIGKILL) // it may have ended
		}
		if within(over, leavePause) {
			return
		}
	}
	_ = id.Signal(syscall.SIGKILL) // as above
	within(over, killMost)
}

// within reports whether something is over in time.
func within(over <-chan struct{}, most time.Duration) bool {
	select {
	case <-over:
		return true
	case <-time.After(most):
		return false
	}
}
