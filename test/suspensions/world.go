package suspensions

import (
	"bufio"
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

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/install"
)

// world is a simulated machine with one agent, and programs in shares of its first GPU.
type world struct {
	tree   install.Tree
	rundir string
	agent  *exec.Cmd
	log    bytes.Buffer
	all    []*program
}

// longest bounds what takes milliseconds, on a busy machine.
const longest = 3 * time.Minute

func open(ctx context.Context, tree install.Tree) (w *world, err error) {
	dir, err := os.MkdirTemp("/dev/shm", "divvy-suspensions-")
	if err != nil {
		return nil, fmt.Errorf("make a run directory: %w", err)
	}
	w = &world{tree: tree, rundir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	start := append([]string{"simgpu", "start", "b200x8", "--name", "m"}, machine...)
	if text, err := w.divvy(start...).CombinedOutput(); err != nil {
		return w, fmt.Errorf("start a machine: %w: %s", err, text)
	}
	return w, w.startAgent(ctx)
}

// machine has room for four of the shares.
var machine = []string{"--set", "gpu.memory=1900Mi", "--set", "gpu.reserved=100Mi", "--set", "gpu.context=16Mi"}

const (
	shares = 6
	fit    = 4
	limit  = "400Mi"
	holds  = "256Mi"
)

func (w *world) divvy(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(string(w.tree), "bin", "divvy"), args...)
	cmd.Env = append(os.Environ(), "DIVVY_RUNDIR="+w.rundir, "DIVVY_PREFIX="+string(w.tree))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

func (w *world) startAgent(ctx context.Context) error {
	// One for this machine alone: as root's `divvy agent` it would be the system's, of which there is one.
	w.agent = w.divvy("agent", "--simgpu-dir", filepath.Join(w.rundir, "simgpu", "m"), "--metrics-address", "none", "--swap-memory", "8Gi")
	w.agent.Stdout, w.agent.Stderr = &w.log, &w.log
	if err := w.agent.Start(); err != nil {
		return fmt.Errorf("start an agent: %w", err)
	}
	var last error
	err := until(ctx, "the agent answers", func() bool {
		var c *control.Client
		if c, last = w.dial(ctx); last != nil {
			return false
		}
		return c.Close() == nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w: %s", err, last, tail(w.log.String()))
	}
	return nil
}

// dial connects to the agent, which is the system's where root runs it.
func (w *world) dial(ctx context.Context) (c *control.Client, err error) {
	for _, e := range []control.Endpoint{{Rundir: w.rundir}, {Rundir: w.rundir, Simgpu: "m"}} {
		if c, err = control.Dial(ctx, e.Socket()); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// killAgent kills the agent and starts another.
func (w *world) killAgent(ctx context.Context) error {
	_ = w.agent.Process.Kill()
	_ = w.agent.Wait() // it was killed
	return w.startAgent(ctx)
}

// killHelper kills the process that asks the driver, and reports whether there was one.
func (w *world) killHelper() bool {
	agent := w.agent.Process.Pid
	entries, _ := os.ReadDir("/proc") // without it nobody is found
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil || !bytes.Contains(text, []byte("(divvy-checkpoin) ")) {
			continue
		}
		var state string
		var parent int
		_, rest, _ := bytes.Cut(text, []byte(") "))
		if _, err := fmt.Sscan(string(rest), &state, &parent); err == nil && parent == agent {
			return syscall.Kill(pid, syscall.SIGKILL) == nil
		}
	}
	return false
}

// program goes through its memory again and again, and tells at its end what of it has changed.
type program struct {
	name string
	cmd  *exec.Cmd
	said bytes.Buffer
	// begun is closed when it works, and ended when it writes no more.
	begun, ended chan struct{}
	last         struct {
		Command string `json:"command"`
		Result  string `json:"result"`
		Changed uint64 `json:"changed_bytes"`
	}
}

func (w *world) start(ctx context.Context, name string) (*program, error) {
	p := &program{name: name, begun: make(chan struct{}), ended: make(chan struct{})}
	p.cmd = w.divvy("run", "--simgpu", "m", "--gpu", "0", "--name", name, "--memory", limit, "--", filepath.Join(string(w.tree), "bin", "gpubench"),
		"sweep", "--bytes", holds, "--count", "0", "--steps", "1", "--ns", "1000000", "--pause", "5", "--kind", "linear", "--seed", strconv.Itoa(len(w.all)+1))
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.cmd.Stderr = &p.said
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	w.all = append(w.all, p)
	go p.read(out)
	select {
	case <-p.begun:
		return p, nil
	case <-p.ended:
		return nil, fmt.Errorf("%s ended: %s", name, strings.TrimSpace(p.said.String()))
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(longest):
		return nil, fmt.Errorf("%s does not begin to work", name)
	}
}

func (p *program) read(out io.Reader) {
	defer close(p.ended)
	lines := bufio.NewScanner(out)
	for first := true; lines.Scan(); first = false {
		if first {
			close(p.begun)
		}
		if bytes.Contains(lines.Bytes(), []byte(`"command"`)) {
			_ = json.Unmarshal(lines.Bytes(), &p.last) // what cannot be read has no result
		}
	}
}

// finish has a program that runs look at its memory and end. It reports whether it did.
func (p *program) finish() bool {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		_ = p.cmd.Wait() // its last line says what it found
		return p.last.Command == "sweep" && (p.last.Result == "CUDA_SUCCESS")
	case <-time.After(longest):
		p.kill()
		return false
	}
}

func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
	_ = p.cmd.Wait() // it was killed
}

func (w *world) close() error {
	for _, p := range w.all {
		select {
		case <-p.ended:
		default:
			p.kill()
		}
	}
	if w.agent != nil && w.agent.Process != nil && w.agent.ProcessState == nil {
		_ = w.agent.Process.Signal(syscall.SIGTERM)
		_ = w.agent.Wait() // however it ends
	}
	text, err := w.divvy("simgpu", "stop", "m", "--force").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("stop the machine: %w: %s", err, text)
	}
	return errors.Join(err, os.RemoveAll(w.rundir))
}

// until waits for what other processes make true.
func until(ctx context.Context, what string, is func() bool) error {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.Now().Add(longest)
	for !is() {
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not so after %s", what, longest)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
