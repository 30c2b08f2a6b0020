package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// longest bounds every wait for something that takes milliseconds, on a busy machine.
const longest = 5 * time.Minute

// fewestLooks are made at least: a virtual machine may stand still for longer than any limit.
const fewestLooks = 100

const gib = 1 << 30

// host is a run directory of the test's own with one simulated machine in it.
type host struct {
	t      *testing.T
	tree   install.Tree
	rundir string
	// instance is the simulated machine's directory.
	instance string
	// bundles are a client's of servers, empty for the user's.
	bundles string
}

// newHost starts a simulated machine. When the test ends, the agent that its shares
// started ends first, then the machine. Tests with their own hosts run in parallel.
func newHost(t *testing.T) *host {
	t.Helper()
	return newHostOf(t, "a100-80g")
}

// newHostOf is newHost on another machine, by name or by the path of its file, with flags of `divvy simgpu start`.
func newHostOf(t *testing.T, machine string, flags ...string) *host {
	t.Helper()
	t.Parallel()
	return startHost(t, machine, flags...)
}

// startHost is newHostOf for a test that is parallel already.
func startHost(t *testing.T, machine string, flags ...string) *host {
	t.Helper()
	tree := installtest.Tree(t)
	rundir, err := os.MkdirTemp("/dev/shm", "divvy-test-")
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, tree: tree, rundir: rundir, instance: filepath.Join(rundir, "simgpu", "m")}
	t.Cleanup(h.close)
	h.ok(append([]string{"simgpu", "start", machine, "--name", "m"}, flags...)...)
	return h
}

// namespaces skips the test where user namespaces are not allowed.
func (h *host) namespaces() *host {
	h.t.Helper()
	if err := h.run("--layer", "namespace", "--", "true").err; err != "" {
		installtest.Missing(h.t, "userns", errors.New(err))
	}
	return h
}

func (h *host) close() {
	h.eventually("the agent ends with its last share", func() bool {
		_, err := os.Stat(filepath.Join(h.instance, "agent.sock"))
		return errors.Is(err, os.ErrNotExist)
	})
	if err := os.RemoveAll(h.rundir); err != nil {
		h.t.Error(err)
	}
}

// waits is what a command says of an agent that has had no processor for two seconds. That is no matter of these tests.
var waits = regexp.MustCompile(`(?m)^divvy: the agent does not answer.*: waiting for it\n`)

// outcome is how a program ended and what it said.
type outcome struct {
	status   int // the exit status, 128 and the signal's number as in a shell
	out, err string
}

func (h *host) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "DIVVY_RUNDIR="+h.rundir, "DIVVY_PREFIX="+string(h.tree))
	if h.bundles != "" {
		cmd.Env = append(cmd.Env, "DIVVY_REMOTE_DIR="+h.bundles)
	}
	return cmd
}

// divvy runs the built program to its end.
func (h *host) divvy(args ...string) outcome {
	h.t.Helper()
	return h.ended(h.command(filepath.Join(string(h.tree), "bin", "divvy"), args...))
}

// ended runs a command to its end.
func (h *host) ended(cmd *exec.Cmd) outcome {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), longest)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait() // the status says it
	if !stop() {
		h.t.Fatalf("%s does not end: %s", strings.Join(cmd.Args, " "), errOut.String())
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	o := outcome{status.ExitStatus(), strings.TrimSpace(out.String()), strings.TrimSpace(waits.ReplaceAllString(errOut.String(), ""))}
	if status.Signaled() {
		o.status = 128 + int(status.Signal())
	}
	return o
}

// ok runs the built program and fails the test unless it succeeds.
func (h *host) ok(args ...string) string {
	h.t.Helper()
	o := h.divvy(args...)
	if o.status != 0 {
		h.t.Fatalf("divvy %s: exit status %d, %s", strings.Join(args, " "), o.status, o.err)
	}
	return o.out
}

// run is `divvy run` on the host's machine.
func (h *host) run(args ...string) outcome {
	h.t.Helper()
	return h.divvy(append([]string{"run", "--simgpu", "m"}, args...)...)
}

// list is what the agent says.
func (h *host) list() control.Listing {
	h.t.Helper()
	var document struct {
		Agents []control.Listing `json:"agents"`
	}
	if err := json.Unmarshal([]byte(h.ok("ls", "-o", "json", "--simgpu", "m")), &document); err != nil {
		h.t.Fatal(err)
	}
	if len(document.Agents) == 0 {
		return control.Listing{}
	}
	return document.Agents[0]
}

// tenant finds a tenant by its name.
func (h *host) tenant(name string) (control.Tenant, bool) {
	h.t.Helper()
	for _, t := range h.list().Tenants {
		if t.Name == name {
			return t, true
		}
	}
	return control.Tenant{}, false
}

// eventually waits for a condition that other processes make true.
func (h *host) eventually(what string, condition func() bool) {
	h.t.Helper()
	deadline := time.Now().Add(longest)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for looks := 0; !condition(); looks++ {
		if looks >= fewestLooks && time.Now().After(deadline) {
			h.t.Fatalf("%s: not so after %d looks in %s", what, looks, longest)
		}
		<-ticker.C
	}
}

// bench is the test program gpubench.
func (h *host) bench() string {
	return filepath.Join(string(h.tree), "bin", "gpubench")
}

// holder is a share whose program holds memory until its input ends.
type holder struct {
	cmd   *exec.Cmd
	input io.WriteCloser
	said  *bytes.Buffer
	// first is the first line that the program printed.
	first string
}

// hold starts `divvy run` with the given flags and program and returns when the
// program has printed a line.
func (h *host) hold(flags []string, command ...string) *holder {
	h.t.Helper()
	args := append([]string{"run", "--simgpu", "m"}, flags...)
	cmd := h.command(filepath.Join(string(h.tree), "bin", "divvy"), append(append(args, "--"), command...)...)
	input, err := cmd.StdinPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	said := &bytes.Buffer{}
	cmd.Stderr = said
	cmd.WaitDelay = longest // for descendants that keep its standard error
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	s := &holder{cmd: cmd, input: input, said: said}
	h.t.Cleanup(func() { s.end() })
	one := make([]byte, 1)
	for !strings.HasSuffix(s.first, "\n") {
		if n, err := output.Read(one); n == 0 && err != nil {
			_ = cmd.Wait()
			h.t.Fatalf("divvy %s ended: %s", strings.Join(cmd.Args[1:], " "), said.String())
		}
		s.first += string(one)
	}
	return s
}

// end closes the program's input and waits until it has ended; a second call does nothing.
func (s *holder) end() {
	_ = s.input.Close()
	_ = s.cmd.Wait()
}
