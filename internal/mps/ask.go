package mps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// answerTime bounds one question. A daemon answers within milliseconds, and while it starts a server within a second.
	answerTime = 10 * time.Second
	// longestAnswer bounds what is kept of an answer, in bytes.
	longestAnswer = 64 << 10
	// absent is what the program says where no daemon is.
	absent = "Cannot find MPS control daemon process"
	// unsent is what it says where the daemon closed the connection.
	unsent = "Cannot send command"
)

// errUnsent says that the daemon did not get the command.
var errUnsent = errors.New("the MPS control daemon closed the connection")

// Daemon is the control daemon of one GPU, whether it runs or not.
type Daemon struct {
	// UUID is the GPU's.
	UUID string
	Dirs Dirs
	// Program is the path of nvidia-cuda-mps-control.
	Program string
	// Environment is what the programs get besides the variables of MPS, such as LD_LIBRARY_PATH.
	Environment []string
	// MultiUser lets one server serve clients of several users, who are then not isolated from each other. Programs
	// before driver 555 do not know it, and start nothing.
	MultiUser bool
}

// command is the program with the daemon's environment.
func (d Daemon) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.Program, args...)
	cmd.Dir = "/"
	cmd.Env = append([]string{
		"PATH=" + filepath.Dir(d.Program) + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"CUDA_VISIBLE_DEVICES=" + d.UUID,
		"CUDA_MPS_PIPE_DIRECTORY=" + d.Dirs.Pipe,
		"CUDA_MPS_LOG_DIRECTORY=" + d.Dirs.Log,
	}, d.Environment...)
	// What the program starts may hold its pipes open: it is not waited for.
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// turns has a lock for each pipe directory. While a daemon serves one program, it may answer another with nothing, or
// refuse it (tried with 535 to 555).
var turns sync.Map

// ask gives the daemon one command and returns the lines of its answer. The daemon may close the connection while it
// starts a server; it is asked again then.
func (d Daemon) ask(ctx context.Context, format string, args ...any) ([]string, error) {
	turn, _ := turns.LoadOrStore(d.Dirs.Pipe, make(chan struct{}, 1))
	mine, ok := turn.(chan struct{})
	if !ok {
		return nil, fmt.Errorf("ask the MPS control daemon: no turn at %s", d.Dirs.Pipe)
	}
	select {
	case mine <- struct{}{}:
		defer func() { <-mine }()
	case <-ctx.Done():
		return nil, fmt.Errorf("ask the MPS control daemon: %w", errors.Join(ErrSilent, context.Cause(ctx)))
	}
	answer, err := d.askOnce(ctx, format, args...)
	if errors.Is(err, errUnsent) {
		return d.askOnce(ctx, format, args...)
	}
	return answer, err
}

func (d Daemon) askOnce(ctx context.Context, format string, args ...any) ([]string, error) {
	command := fmt.Sprintf(format, args...)
	if strings.ContainsAny(command, "\n\x00") {
		return nil, fmt.Errorf("ask the MPS control daemon: %q is more than one command", command)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var out, said bounded
	cmd := d.command(ctx)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(command+"\n"), &out, &said
	err := cmd.Run()
	switch {
	case strings.Contains(said.String()+out.String(), unsent):
		return nil, fmt.Errorf("ask %q: %w", command, errUnsent)
	case err == nil:
	case ctx.Err() != nil:
		return nil, fmt.Errorf("ask %q: %w", command, errors.Join(ErrSilent, context.Cause(ctx)))
	case strings.Contains(said.String(), absent):
		return nil, fmt.Errorf("ask %q: %w at %s", command, ErrAbsent, d.Dirs.Pipe)
	default:
		return nil, fmt.Errorf("ask %q: %w: %s", command, err, said.line())
	}
	if out.cut {
		return nil, fmt.Errorf("ask %q: %w: it is longer than %d bytes", command, ErrAnswer, longestAnswer)
	}
	answer := lines(out.String())
	if err := refusal(answer); err != nil {
		return nil, fmt.Errorf("ask %q: %w", command, err)
	}
	return answer, nil
}

// bounded keeps the beginning of what is written.
type bounded struct {
	bytes.Buffer
	cut bool
}

// Write implements [io.Writer].
func (b *bounded) Write(p []byte) (int, error) {
	room := min(len(p), longestAnswer-b.Len())
	b.cut = b.cut || room < len(p)
	b.Buffer.Write(p[:room])
	return len(p), nil
}

// line is what was written, as one line for people.
func (b *bounded) line() string {
	return strings.Join(lines(b.String()), ", ")
}
