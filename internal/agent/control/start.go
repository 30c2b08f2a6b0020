package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// ReadyFD is the file descriptor on which a starting agent reports, in one
// line of JSON, that it serves or why it cannot: see [Report].
const ReadyFD = 3

// ready is what an agent reports.
type ready struct {
	Error *Error `json:"error,omitempty"`
}

// Report tells the program that started this agent that it serves (err nil) or
// why it ends. w is then closed.
func Report(w io.WriteCloser, err error) error {
	var r ready
	if err != nil {
		r.Error = &Error{Code: CodeOf(err), Message: err.Error()}
	}
	line, err := encodeLine(r)
	if err != nil {
		return err
	}
	_, err = w.Write(line)
	return errors.Join(err, w.Close())
}

// HoldStart lets nobody start an agent at the endpoint until the file is closed. An agent
// that starts again inside its process holds it meanwhile: who looks for it waits.
func (e Endpoint) HoldStart(ctx context.Context) (*os.File, error) {
	return acquire(ctx, filepath.Join(e.Dir(), "start.lock"))
}

// start runs an agent unless another program is just doing so, and returns when
// it serves. The lock is held from before the last look at the socket until the
// agent serves, so that of several starters one starts and the others find.
func (s Starter) start(ctx context.Context, e Endpoint) error {
	if err := rundir.Make(e.Dir(), rundir.Mode()); err != nil {
		return err
	}
	lock, err := e.HoldStart(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	if c, err := Dial(ctx, e.Socket()); err == nil {
		return c.Close()
	}
	report, inherited, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	defer report.Close()
	err = s.spawn(e, inherited)
	inherited.Close()
	if err != nil {
		return err
	}
	return awaitReady(ctx, report, e.log())
}

// spawn starts the agent in a session of its own, so that neither the
// terminal's signals nor its end reach it.
func (s Starter) spawn(e Endpoint, inherited *os.File) error {
	program := s.Executable
	if program == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find own program: %w", err)
		}
		program = self
	}
	args := []string{"agent", "--ephemeral"}
	if e.Simgpu != "" {
		args = append(args, "--simgpu-dir", e.Simgpu)
	}
	logFile, err := os.OpenFile(e.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("open the agent's log: %w", err)
	}
	defer logFile.Close()
	tree, err := install.Find()
	if err != nil {
		return err
	}
	// Detached, because this process may become a tenant's command, which may
	// wait for every child it has.
	cmd := exec.Command(tree.Program("divvy-enter"), append([]string{"--detach", "--", program}, args...)...)
	cmd.Dir = "/"
	cmd.Env = agentEnvironment(os.Environ(), e)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.ExtraFiles = []*os.File{inherited} // becomes ReadyFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s: %w", cmd.Path, err)
	}
	return nil
}

// agentEnvironment leaves out what would make the agent see fewer GPUs than
// there are, or load somebody's library.
func agentEnvironment(env []string, e Endpoint) []string {
	hide := []string{"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LD_PRELOAD", rundir.Variable}
	kept := slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(hide, name)
	})
	if os.Getenv(rundir.Variable) != "" {
		kept = append(kept, rundir.Variable+"="+e.Rundir)
	}
	return kept
}

// awaitReady reads the agent's report; its end without one means that the
// agent died.
func awaitReady(ctx context.Context, report *os.File, logPath string) error {
	stop := context.AfterFunc(ctx, func() { report.Close() })
	defer stop()
	line, err := bufio.NewReader(report).ReadBytes('\n')
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("the agent ended before it served: see %s", logPath)
	}
	var r ready
	if err := json.Unmarshal(line, &r); err != nil {
		return fmt.Errorf("read the agent's report: %w", err)
	}
	if r.Error != nil {
		return r.Error
	}
	return nil
}

// acquire takes a lock file. It waits in a goroutine of its own because flock
// cannot be given a deadline; an abandoned wait ends when the lock is free.
func acquire(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, lockFault(path, err)
	}
	taken := make(chan error, 1)
	go func() { taken <- retryInterrupted(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX) }) }()
	select {
	case err := <-taken:
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		return f, nil
	case <-ctx.Done():
		go func() {
			if err := <-taken; err == nil {
				f.Close() // and with it the lock
			}
		}()
		return nil, ctx.Err()
	}
}

// lockFault says why a lock file cannot be opened, and what to do if that is known.
func lockFault(path string, err error) error {
	if errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("open lock: %w: mount %s writable", err, filepath.Dir(path))
	}
	return fmt.Errorf("open lock: %w", err)
}

func retryInterrupted(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// nobodyThere reports whether a connection failed because no agent listens,
// as opposed to one that cannot be spoken to.
func nobodyThere(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, ErrGone)
}
