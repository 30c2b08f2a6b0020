package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// poll is the time between two looks at a condition that nothing announces.
const poll = 50 * time.Millisecond

// until looks at a condition until it holds. The last reason why it does not is
// part of the error.
func until(ctx context.Context, what string, condition func(context.Context) error) error {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		err := condition(ctx)
		if err == nil {
			return nil
		}
		var final *deadError
		if errors.As(err, &final) {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w: %w", what, context.Cause(ctx), err)
		}
	}
}

// deadError ends a wait for something that a process would have done.
type deadError struct {
	name, tail string
}

func (e *deadError) Error() string {
	return fmt.Sprintf("%s has ended: %s", e.name, e.tail)
}

// process is a program of the cluster that runs until it is stopped.
type process struct {
	name string
	log  string // file
	cmd  *exec.Cmd
	done chan struct{} // closed once it has been reaped
}

// run starts a program in a space. What it prints is appended to its log.
func (s *space) run(name, log string, kinds, env []string, program string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(program, args...)
	cmd.Env = append(environment(), env...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := s.start(cmd, kinds); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, log: log, cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// environment is what programs of the cluster get: nothing of the test's own
// moves their files or changes their parts.
func environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=/root", "LANG=C.UTF-8"}
}

// alive is nil while the process runs.
func (p *process) alive() error {
	select {
	case <-p.done:
		return &deadError{p.name, fmt.Sprintf("%v: end of %s:\n%s", p.cmd.ProcessState, p.log, tail(p.log))}
	default:
		return nil
	}
}

// signal sends a signal; one that has ended needs none.
func (p *process) signal(ctx context.Context, signal syscall.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of %s: %w", p.name, ctx.Err())
	}
}

// tail is the end of a log.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
