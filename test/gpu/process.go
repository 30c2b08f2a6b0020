package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errStuck marks a program that SIGKILL did not end: its thread waits in the kernel, most likely for the GPU.
var errStuck = errors.New("a program cannot be ended, it waits in the driver")

// killTime is how long a killed program may take to end. A context of many GiB takes seconds.
const killTime = 15 * time.Second

// mostOutput bounds what is kept of a program's output.
const mostOutput = 4 << 20

// output is what a program wrote and how it ended. status is -1 for a signal.
type output struct {
	out, err string
	status   int
	how      string
}

// say is a program's last words, for a message.
func (o output) say() string {
	text := strings.TrimSpace(o.err)
	if text == "" {
		text = strings.TrimSpace(o.out)
	}
	if at := len(text) - 600; at > 0 {
		text = "…" + text[at:]
	}
	return o.how + ": " + text
}

// last decodes the last JSON object that the program printed.
func (o output) last(into any) error {
	lines := strings.Split(o.out, "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.HasPrefix(lines[i], "{") {
			if err := json.Unmarshal([]byte(lines[i]), into); err != nil {
				return fmt.Errorf("read a program's answer: %w", err)
			}
			return nil
		}
	}
	return fmt.Errorf("read a program's answer: it gave none (%s)", o.say())
}

// bounded keeps the first bytes that are written to it.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	_, err := b.Buffer.Write(p[:min(len(p), max(0, mostOutput-b.Len()))])
	return len(p), err
}

// program is one that runs, in a process group of its own.
type program struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	err    bounded
	ended  chan struct{}
	status error
}

// start starts a command; what it prints goes to out. Its input is open until end or kill.
func start(command []string, env []string, attr *syscall.SysProcAttr, out io.Writer) (*program, error) {
	p := &program{cmd: exec.Command(command[0], command[1:]...), ended: make(chan struct{})}
	if attr == nil {
		attr = &syscall.SysProcAttr{}
	}
	attr.Setpgid = true
	p.cmd.Env, p.cmd.SysProcAttr, p.cmd.Stdout, p.cmd.Stderr = env, attr, out, &p.err
	// A program's child may keep its output open after it; nobody waits for that.
	p.cmd.WaitDelay = time.Second
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(command[0]), err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(command[0]), err)
	}
	go func() {
		p.status = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// kill ends the program and all of its group.
func (p *program) kill() error {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	select {
	case <-p.ended:
		return nil
	case <-time.After(killTime):
		return fmt.Errorf("%s: %w", filepath.Base(p.cmd.Path), errStuck)
	}
}

// wait closes the program's input and waits for its end; a context that ends kills it.
func (p *program) wait(ctx context.Context) error {
	_ = p.stdin.Close()
	select {
	case <-p.ended:
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // what it left in its group
		return nil
	case <-ctx.Done():
		if err := p.kill(); err != nil {
			return err
		}
		return fmt.Errorf("%s: %w", filepath.Base(p.cmd.Path), context.Cause(ctx))
	}
}

// output is the program's, which has ended.
func (p *program) output(out string) output {
	o := output{out: out, err: p.err.String(), status: p.cmd.ProcessState.ExitCode()}
	o.how = p.cmd.ProcessState.String()
	return o
}

// finish runs a command to its end.
func finish(ctx context.Context, command []string, env []string, attr *syscall.SysProcAttr) (output, error) {
	var out bounded
	p, err := start(command, env, attr, &out)
	if err != nil {
		return output{}, err
	}
	if err := p.wait(ctx); err != nil {
		return output{}, err
	}
	return p.output(out.String()), nil
}

// adopt makes this process the parent of what its children leave behind, so that nothing is left when it ends.
func adopt() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// children lists this process's.
func children() (pids []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// reap waits until all adopted children have ended: an agent of Divvy's ends soon after its last share. Whoever has not
// ended after a while is told to, and then killed.
func reap() {
	begin, looks := time.Now(), time.NewTicker(20*time.Millisecond)
	defer looks.Stop()
	for told := false; ; <-looks.C {
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
		left, taken := children(), time.Since(begin)
		if len(left) == 0 || taken > 2*killTime {
			return
		}
		for _, pid := range left {
			switch {
			case taken > killTime:
				_ = syscall.Kill(pid, syscall.SIGKILL)
			case taken > killTime/2 && !told:
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
		}
		told = told || taken > killTime/2
	}
}
