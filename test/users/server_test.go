package users

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/multiuser"
)

// longest bounds every wait for something that takes milliseconds, on a busy machine.
const longest = 5 * time.Minute

const gib = 1 << 30

// server is a machine with eight GPUs of 24 GiB, in namespaces of its own.
type server struct {
	*multiuser.Server
	t *testing.T
}

// newServer makes a server without an agent, whose machine has fields of the machine
// file set as given. Servers of tests run in parallel.
func newServer(t *testing.T, set ...string) *server {
	t.Helper()
	s := newBareServer(t)
	var flags []string
	for _, field := range set {
		flags = append(flags, "--set", field)
	}
	if err := s.StartGPUs(t.Context(), flags...); err != nil {
		t.Fatal(err)
	}
	return s
}

// newBareServer makes a server without a driver.
func newBareServer(t *testing.T) *server {
	t.Helper()
	t.Parallel()
	if os.Getuid() != 0 {
		installtest.Missing(t, "users", errors.New("only root makes users"))
	}
	made, err := multiuser.Open(string(installtest.Tree(t)))
	if err != nil {
		installtest.Missing(t, "users", err)
	}
	t.Cleanup(made.Close)
	return &server{made, t}
}

func readLine(r io.Reader) (string, error) {
	line, one := "", make([]byte, 1)
	for {
		n, err := r.Read(one)
		switch {
		case n == 0 && err != nil:
			return line, err
		case n == 0:
		case one[0] == '\n':
			return line, nil
		default:
			line += string(one)
		}
	}
}

// write makes a file of the server that everybody may read.
func (s *server) write(path, text string) {
	s.t.Helper()
	if err := s.Write(path, text); err != nil {
		s.t.Fatal(err)
	}
}

// command is a program that a user starts on the server. It lives until the test ends it.
func (s *server) command(user string, args ...string) *exec.Cmd {
	return s.Command(context.WithoutCancel(s.t.Context()), user, args...)
}

// transcript is what a program has said so far.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (t *transcript) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(text)
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// outcome is how a program ended and what it said.
type outcome struct {
	status   int // the exit status, 128 and the signal's number as in a shell
	out, err string
}

// run runs a program as a user to its end.
func (s *server) run(user string, args ...string) outcome {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), longest)
	defer cancel()
	cmd := s.command(user, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = longest // an agent that it started keeps nothing of its output
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait() // the status says it
	if !stop() {
		s.t.Fatalf("%s of %s does not end: %s", strings.Join(args, " "), user, errOut.String())
	}
	return outcome{statusOf(cmd), strings.TrimSpace(out.String()), strings.TrimSpace(errOut.String())}
}

func statusOf(cmd *exec.Cmd) int {
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// ok runs a program as a user and fails the test unless it succeeds.
func (s *server) ok(user string, args ...string) string {
	s.t.Helper()
	o := s.run(user, args...)
	if o.status != 0 {
		s.t.Fatalf("%s, %s: exit status %d, %s", user, strings.Join(args, " "), o.status, o.err)
	}
	return o.out
}

func (s *server) asRoot(args ...string) { s.t.Helper(); s.ok("root", args...) }

// refused runs a program as a user that must fail with a message that has all of the
// given words, and returns the message.
func (s *server) refused(user string, says []string, args ...string) string {
	s.t.Helper()
	o := s.run(user, args...)
	for _, words := range says {
		if !strings.Contains(o.err, words) {
			s.t.Errorf("%s, %s: %q does not say %q", user, strings.Join(args, " "), o.err, words)
		}
	}
	if o.status == 0 {
		s.t.Errorf("%s, %s succeeds: %s", user, strings.Join(args, " "), o.out)
	}
	return o.err
}

// program is one that runs on the server until its input ends or it is killed.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	input io.WriteCloser
	said  *transcript // its standard error
	// first is the first line that it printed; output has what follows.
	first  string
	output io.Reader
}

// start starts a program as a user. With line it returns when the program has printed
// a line.
func (s *server) start(user string, line bool, args ...string) *program {
	s.t.Helper()
	p := &program{t: s.t, cmd: s.command(user, args...), said: &transcript{}}
	input, err := p.cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	p.input, p.output, p.cmd.Stderr, p.cmd.WaitDelay = input, output, p.said, longest
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { p.kill(syscall.SIGKILL) })
	if !line {
		return p
	}
	if p.first, err = readLine(output); err != nil {
		_ = p.cmd.Wait()
		s.t.Fatalf("%s, %s ended: %s", user, strings.Join(args, " "), p.said.String())
	}
	return p
}

// hold is a share of a user whose program holds memory until it is ended.
func (s *server) hold(user, bytes string, flags ...string) *program {
	s.t.Helper()
	args := append(append([]string{"divvy", "run"}, flags...), "--", "gpubench", "hold", "--bytes", bytes)
	return s.start(user, true, args...)
}

// pid is the program's process as the test sees it.
func (p *program) pid() int {
	p.t.Helper()
	pid, err := multiuser.Child(p.cmd)
	if err != nil {
		p.t.Fatal(err)
	}
	return pid
}

// end closes the program's input, waits for its end and returns its status.
func (p *program) end() int {
	_ = p.input.Close()
	_ = p.cmd.Wait()
	return statusOf(p.cmd)
}

// wait waits for the program's end and returns its status.
func (p *program) wait() int {
	_ = p.cmd.Wait()
	return statusOf(p.cmd)
}

// kill ends the program by a signal, unless it has ended, and waits for its end.
func (p *program) kill(signal syscall.Signal) {
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.input.Close()
	// It may have ended, and may not have begun yet.
	for multiuser.Signal(p.cmd, signal) != nil && stateOf(p.cmd.Process.Pid) != "Z" {
		time.Sleep(time.Millisecond)
	}
	_ = p.cmd.Wait()
}

// agent starts the system's agent and returns when it serves.
func (s *server) agent(flags ...string) *program {
	s.t.Helper()
	p := s.start("root", false, append([]string{"divvy", "agent"}, flags...)...)
	s.eventually("the agent serves", func() bool {
		if p.cmd.Process.Signal(syscall.Signal(0)) != nil {
			s.t.Fatal("the agent ended")
		}
		client, err := control.Dial(s.t.Context(), s.Socket())
		return err == nil && client.Close() == nil
	})
	return p
}

// list is what the system's agent tells root.
func (s *server) list() control.Listing {
	s.t.Helper()
	list, err := s.List(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return *list
}

// find is a share of a user, by its name.
func find(list control.Listing, user, name string) (control.Tenant, bool) {
	for _, t := range list.Tenants {
		if t.User == user && t.Name == name {
			return t, true
		}
	}
	return control.Tenant{}, false
}

// eventually waits for a condition that other processes make true.
func (s *server) eventually(what string, condition func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(longest)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for looks := 0; !condition(); looks++ {
		// A virtual machine may stand still for longer than any limit.
		if looks >= 100 && time.Now().After(deadline) {
			s.t.Fatalf("%s: not so after %d looks in %s", what, looks, longest)
		}
		<-ticker.C
	}
}
