package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/edits"
)

// ErrWorker is returned where the worker of a command does not begin to listen.
var ErrWorker = errors.New("the worker that calls the driver for the command did not start")

// Life keeps a worker that was started: it ends when nobody has its end of a pipe any more.
type Life struct{ end *os.File }

// Inherited is the life of a worker that somebody else has started, by its end of the pipe.
func Inherited(end *os.File) Life { return Life{end} }

// lifeFD is the smallest number of a descriptor that a command inherits: far above those that shells and programs use.
const lifeFD = 64

// Bequeath leaves the worker's life to the program that this process becomes by execve(2), and to that one's children.
func (l Life) Bequeath() error {
	// F_DUPFD, unlike what Go does by itself, leaves close-on-exec off.
	if _, err := unix.FcntlInt(l.end.Fd(), unix.F_DUPFD, lifeFD); err != nil {
		return fmt.Errorf("pass the worker's life to the command: %w", err)
	}
	return nil
}

// Await returns when the worker has ended that listens.
func (l Life) Await() error {
	gone := []unix.PollFd{{Fd: int32(l.end.Fd())}}
	for {
		_, err := unix.Poll(gone, -1) // that nobody reads is told unasked
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for the end of a worker: %w", err)
		case gone[0].Revents != 0:
			return nil
		}
	}
}

// End ends the worker, unless the life was left to a command that has it.
func (l Life) End() error { return l.end.Close() }

// listening is what a worker writes when programs can connect to it.
const listening = "listening\n"

// Work starts the worker and returns when programs can connect to it. It is no child of this process and has no
// terminal, so that what is typed there reaches the command alone. What it has to say goes to where this process writes
// its errors.
func (e Enter) Work(w *edits.Worker, env []string) (Life, error) {
	plan := e.workerPlan(w, env)
	return begin(time.Time{}, &exec.Cmd{Path: plan.Program, Args: plan.Args, Env: plan.Env, Stderr: os.Stderr})
}

// begin starts the worker of a command, which is given its life and where it says that it listens, and returns when it does,
// or with an error at a time, which may be zero for none.
func begin(latest time.Time, cmd *exec.Cmd) (Life, error) {
	ours, theirs, err := os.Pipe()
	if err != nil {
		return Life{}, fmt.Errorf("%w: %w", ErrWorker, err)
	}
	defer ours.Close()
	life, end, err := os.Pipe()
	if err != nil {
		return Life{}, errors.Join(fmt.Errorf("%w: %w", ErrWorker, err), theirs.Close())
	}
	cmd.ExtraFiles = append([]*os.File{life, theirs}, cmd.ExtraFiles...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = errors.Join(cmd.Run(), life.Close(), theirs.Close())
	if err == nil {
		err = ours.SetReadDeadline(latest)
	}
	if err == nil {
		var said []byte
		if said, err = io.ReadAll(io.LimitReader(ours, int64(len(listening)))); err == nil && string(said) != listening {
			err = errors.New("it ended before it listened")
		}
	}
	if err != nil {
		return Life{}, errors.Join(fmt.Errorf("%w: %w", ErrWorker, err), end.Close())
	}
	return Life{end}, nil
}

// The numbers of the descriptors in ExtraFiles.
const (
	lifeInherited  = "3"
	readyInherited = "4"
	boundInherited = "5"
)

// leads reports whether a variable has files become part of a process, in which the command could have its own code: each
// worker begins when the command connects, outside of what hides the driver.
func leads(variable string) bool {
	for _, start := range []string{"LD_", "CUDA_INJECTION", "NVTX_INJECTION", "GCONV_PATH=", "LOCPATH="} {
		if strings.HasPrefix(variable, start) {
			return true
		}
	}
	return false
}

// workerPlan computes how a worker is executed. It is pure.
func (e Enter) workerPlan(w *edits.Worker, env []string) Plan {
	p := e.Plan(w.Edits, slices.DeleteFunc(slices.Clone(env), leads), []string{w.Program, "--listen", w.Socket, "--life", lifeInherited, "--ready", readyInherited})
	p.Args = append([]string{string(e), "--detach", "--"}, p.Args...)
	return p
}
