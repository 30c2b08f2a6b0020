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
	// slowAnswer is how long a question may take before it is asked who keeps the daemon from answering, and stuckLook the time
	// between two such looks.
	slowAnswer = time.Second
	stuckLook  = 100 * time.Millisecond
	// mostTries bounds how often a daemon is asked that closes the connection.
	mostTries = 8
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
	// Console keeps the program running through which commands are given, so that nobody else gives any.
	Console bool
	// Stuck is called again and again while a question takes long, and Refused when somebody else gives commands; nil does
	// nothing about it.
	Stuck, Refused func()
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

// next stands between the commands of a session. No daemon knows it, and the answer, which names it, ends that of the
// command before.
const next = "divvy-next"

// reply is what the daemon answers to one command of a session.
type reply struct {
	command string
	lines   []string
}

// err says that the daemon refused the command.
func (r reply) err() error {
	if err := refusal(r.lines); err != nil {
		return fmt.Errorf("ask %q: %w", r.command, err)
	}
	return nil
}

// ask gives the daemon one command and returns the lines of its answer.
func (d Daemon) ask(ctx context.Context, format string, args ...any) ([]string, error) {
	replies, err := d.session(ctx, fmt.Sprintf(format, args...))
	if err != nil {
		return nil, err
	}
	return replies[0].lines, replies[0].err()
}

// session gives the daemon commands in one go, and returns its answers. The daemon may close the
// connection while it starts a server; it is asked all again then. A command that it refuses is no error of the session.
func (d Daemon) session(ctx context.Context, commands ...string) ([]reply, error) {
	for _, command := range commands {
		if strings.ContainsAny(command, "\n\x00") {
			return nil, fmt.Errorf("ask the MPS control daemon: %q is more than one command", command)
		}
	}
	done, err := d.takeTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	replies, err := d.once(ctx, commands)
	for tries := 1; errors.Is(err, errUnsent) && tries < mostTries && ctx.Err() == nil; tries++ {
		if d.Refused != nil {
			d.Refused()
		}
		select {
		case <-time.After(time.Duration(tries-1) * poll): // it lets go of who gave commands after a moment, without notice
		case <-ctx.Done():
		}
		replies, err = d.once(ctx, commands)
	}
	return replies, err
}

// takeTurn waits until no other question is asked, and returns what lets the next one.
func (d Daemon) takeTurn(ctx context.Context) (done func(), err error) {
	turn, _ := turns.LoadOrStore(d.Dirs.Pipe, make(chan struct{}, 1))
	mine, ok := turn.(chan struct{})
	if !ok {
		return nil, fmt.Errorf("ask the MPS control daemon: no turn at %s", d.Dirs.Pipe)
	}
	select {
	case mine <- struct{}{}:
		return func() { <-mine }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("ask the MPS control daemon: %w", errors.Join(ErrSilent, context.Cause(ctx)))
	}
}

// once asks by the console, where one is to be kept and can be.
func (d Daemon) once(ctx context.Context, commands []string) ([]reply, error) {
	if d.Console {
		replies, err := d.askConsole(ctx, commands)
		if !errors.Is(err, errTerminal) {
			return replies, err
		}
	}
	return d.askOnce(ctx, commands)
}

func (d Daemon) askOnce(ctx context.Context, commands []string) ([]reply, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var out, said bounded
	cmd := d.command(ctx)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(strings.Join(commands, "\n"+next+"\n")+"\n"), &out, &said
	relieved := d.relieve(ctx)
	err := runAsking(cmd)
	relieved()
	switch {
	case strings.Contains(said.String()+out.String(), unsent):
		return nil, fmt.Errorf("ask %q: %w", commands, errUnsent)
	case err == nil:
	case ctx.Err() != nil:
		return nil, fmt.Errorf("ask %q: %w", commands, errors.Join(ErrSilent, context.Cause(ctx)))
	case strings.Contains(said.String(), absent):
		return nil, fmt.Errorf("ask %q: %w at %s", commands, ErrAbsent, d.Dirs.Pipe)
	default:
		return nil, fmt.Errorf("ask %q: %w: %s", commands, err, said.line())
	}
	if out.cut {
		return nil, fmt.Errorf("ask %q: %w: it is longer than %d bytes", commands, ErrAnswer, longestAnswer)
	}
	return answers(commands, lines(out.String()))
}

// asking are the programs of this process's that ask daemons, by pid.
var asking sync.Map

// runAsking runs a program that asks.
func runAsking(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	asking.Store(cmd.Process.Pid, true)
	defer asking.Delete(cmd.Process.Pid)
	return cmd.Wait()
}

// isMark reports whether a line is the answer to [next].
func isMark(line string) bool {
	return strings.HasPrefix(line, unknownCommand) && strings.Contains(line, next)
}

// answers are what lines of a session say to each of its commands.
func answers(commands, said []string) ([]reply, error) {
	replies := []reply{{command: commands[0]}}
	for _, line := range said {
		last := &replies[len(replies)-1]
		switch {
		case !isMark(line):
			last.lines = append(last.lines, line)
		case len(replies) == len(commands):
			return nil, fmt.Errorf("ask %q: %w: it has too many parts", commands, ErrAnswer)
		default:
			replies = append(replies, reply{command: commands[len(replies)]})
		}
	}
	if len(replies) < len(commands) {
		return nil, fmt.Errorf("ask %q: %w: it ends after %q", commands, ErrAnswer, replies[len(replies)-1].command)
	}
	return replies, nil
}

// relieve calls [Daemon.Stuck] until the function that it returns is called, from when an answer takes long.
func (d Daemon) relieve(ctx context.Context) (done func()) {
	if d.Stuck == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		late := time.NewTimer(slowAnswer)
		defer late.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-late.C:
				d.Stuck()
				late.Reset(stuckLook)
			}
		}
	})
	return func() {
		cancel()
		looking.Wait()
	}
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
