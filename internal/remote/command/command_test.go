package command

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/identity/identitytest"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// The test's program is also the attendant and the client.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "attend":
			if err := Attend(context.Background(), func(context.Context) error { return nil }); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(125)
			}
			os.Exit(0)
		case "client":
			os.Exit(client(os.Args[2], os.Args[3], os.Args[4:]))
		}
	}
	// A signal that this process was started to ignore, as by nohup, the client would ignore too. One that is caught here is not.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	os.Exit(m.Run())
}

// client runs a command as `divvy run --on` does.
func client(bundle, address string, args []string) int {
	fail := func(err error) int { fmt.Fprintln(os.Stderr, "client:", err); return 125 }
	b, err := identity.ReadBundle(bundle)
	if err != nil {
		return fail(err)
	}
	conn, err := tls.Dial("tcp", address, b.Config("localhost"))
	if err != nil {
		return fail(err)
	}
	env, err := Pass(os.Environ(), []string{"TESTED"})
	if err != nil {
		return fail(err)
	}
	c := Client{Streams: [3]*os.File{os.Stdin, os.Stdout, os.Stderr}, Tell: func(text string) { fmt.Fprintln(os.Stderr, text) }}
	open := wire.Open{Purpose: wire.PurposeCommand, Command: &wire.Command{Args: args, Env: env}}
	e, err := c.Run(context.Background(), wire.New(conn), open)
	if err != nil {
		return fail(err)
	}
	return Status(e)
}

// host is a server of commands.
type host struct {
	t               *testing.T
	address, bundle string
	listener        net.Listener
	served          chan error
	run             Host
	// over is called when a command has ended.
	over atomic.Pointer[func(clean bool)]
	// end ends the server's commands.
	end context.CancelCauseFunc
}

func serve(t *testing.T, variables ...string) *host {
	t.Helper()
	authority := identitytest.NewAuthority(t, "localhost")
	h := &host{t: t, bundle: filepath.Join(t.TempDir(), "ada.pem"), served: make(chan error, 16)}
	identitytest.Write(t, authority.Bundle(t, "ada"), h.bundle)
	var err error
	if h.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.listener.Close() })
	h.address = h.listener.Addr().String()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	who, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(who.Uid)
	h.run = Host{Attendant: []string{self, "attend"}, Run: []string{"/usr/bin/env"}, User: User{Name: who.Username, Home: who.HomeDir, UID: uid}, Variables: variables}
	h.run.Ended = func(clean bool) {
		if over := h.over.Load(); over != nil {
			(*over)(clean)
		}
	}
	ctx, end := context.WithCancelCause(context.Background())
	t.Cleanup(func() { end(nil) })
	h.end = end
	go h.accept(ctx, authority.Server)
	return h
}

func (h *host) accept(ctx context.Context, config *tls.Config) {
	for {
		raw, err := h.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			conn := wire.New(tls.Server(raw, config))
			defer conn.Close()
			var open wire.Open
			if err := conn.Receive(&open); err != nil {
				h.served <- err
				return
			}
			err := h.run.Serve(ctx, conn, *open.Command)
			if refused := new(wire.Refused); errors.As(err, &refused) {
				conn.Last(wire.Answer{Refused: refused})
			}
			h.served <- err
		}()
	}
}

// command is a client's process for a shell's text.
func (h *host) command(text string) *exec.Cmd {
	h.t.Helper()
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command(self, "client", h.bundle, h.address, "sh", "-c", text)
	cmd.Dir = h.t.TempDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// ended waits until the server is done with a command: then nothing is left of it.
func (h *host) ended() error {
	h.t.Helper()
	select {
	case err := <-h.served:
		return err
	case <-time.After(time.Minute):
		h.t.Fatal("the server still serves the command")
		return nil
	}
}

func TestStreams(t *testing.T) {
	h := serve(t)
	cmd := h.command("cat; echo done >&2; exit 7")
	sent := make([]byte, 9<<20+17)
	for i := range sent {
		sent[i] = byte(i * i >> 7)
	}
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(sent), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("it ended with %v: %s", err, &errs)
	}
	if !bytes.Equal(out.Bytes(), sent) || errs.String() != "done\n" {
		t.Errorf("%d bytes of %d came back, and %q", out.Len(), len(sent), &errs)
	}
	if err := h.ended(); err != nil {
		t.Error(err)
	}
	if files, _ := filepath.Glob(filepath.Join(cmd.Dir, ".*")); len(files) > 0 {
		t.Errorf("left in the directory: %v", files)
	}
}

func TestStatus(t *testing.T) {
	h := serve(t)
	tests := []struct {
		text   string
		status int
		signal syscall.Signal
	}{
		{"exit 0", 0, 0},
		{"exit 255", 255, 0},
		{"kill -TERM $$", -1, syscall.SIGTERM},
		{"kill -KILL $$", -1, syscall.SIGKILL},
		{"kill -SEGV $$", -1, syscall.SIGSEGV},
	}
	for _, test := range tests {
		cmd := h.command(test.text)
		_ = cmd.Run() // the state tells
		status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if status.ExitStatus() != test.status || test.signal != 0 && status.Signal() != test.signal {
			t.Errorf("%s: status %d, signal %v", test.text, status.ExitStatus(), status.Signal())
		}
		if err := h.ended(); err != nil {
			t.Error(err)
		}
	}
}

// begun starts a command and returns when it has written a line.
func begun(t *testing.T, cmd *exec.Cmd, want string) io.Reader {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line := make([]byte, len(want)+1)
	if _, err := io.ReadFull(out, line); err != nil || string(line) != want+"\n" {
		t.Fatalf("it wrote %q: %v", line, err)
	}
	return out
}

func TestSignals(t *testing.T) {
	h := serve(t)
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGQUIT} {
		cmd := h.command(fmt.Sprintf("trap 'echo got; exit 3' %d; echo ready; while :; do sleep 0.1; done", s))
		out := begun(t, cmd, "ready")
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(out)
		if err := errors.Join(err, cmd.Wait()); string(rest) != "got\n" || cmd.ProcessState.ExitCode() != 3 {
			t.Errorf("%v: %q, %v", s, rest, err)
		}
		if err := h.ended(); err != nil {
			t.Error(err)
		}
	}
}

// A signal passes data that nobody reads.
func TestSignalBesideData(t *testing.T) {
	h := serve(t)
	cmd := h.command("echo ready; exec sleep 1000")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	begun(t, cmd, "ready")
	go func() { _, _ = in.Write(make([]byte, 8*wire.Room)) }() // it waits until the command has ended
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the state tells
	if status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
	if err := h.ended(); err != nil {
		t.Error(err)
	}
}

// Who reads no more is noticed by who writes, in both directions.
func TestBroken(t *testing.T) {
	h := serve(t)
	cmd := h.command("trap '' PIPE; while echo line; do :; done 2>/dev/null; echo stopped >&2; exit 4")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	out.Close()
	_ = cmd.Wait() // the state tells
	if cmd.ProcessState.ExitCode() != 4 || errs.String() != "stopped\n" {
		t.Errorf("it ended with %v: %q", cmd.ProcessState, &errs)
	}
	if err := h.ended(); err != nil {
		t.Error(err)
	}

	cmd = h.command("exec <&-; echo ready; sleep 1000 & wait")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	begun(t, cmd, "ready")
	for {
		if _, err := in.Write(make([]byte, 4096)); err != nil {
			break // nobody reads it on this host
		}
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if err := h.ended(); err == nil {
		t.Error("the server says that a client which was killed has ended well")
	}
}

// A stream that cannot be carried to its end on the client's host is no success.
func TestNotComplete(t *testing.T) {
	for redirected, want := range map[string]string{
		">/dev/full": "client: what the command wrote to standard output is not complete: no space left on device\n",
		"<.":         "client: what the command read is not complete: is a directory\n",
	} {
		h := serve(t)
		cmd := h.command("cat; echo line")
		shell := exec.Command("sh", append([]string{"-c", `exec "$@" ` + redirected, "sh"}, cmd.Args...)...)
		shell.Dir = cmd.Dir
		var errs bytes.Buffer
		shell.Stderr = &errs
		_ = shell.Run() // the state tells
		if shell.ProcessState.ExitCode() != 125 || errs.String() != want {
			t.Errorf("%s: it ended with %v: %q", redirected, shell.ProcessState, &errs)
		}
		if err := h.ended(); err != nil {
			t.Error(err)
		}
	}
}

// What a command leaves running ends with it, and all ends with the client.
func TestNothingIsLeft(t *testing.T) {
	h := serve(t)
	const stubborn = `trap '' TERM HUP INT; setsid sh -c 'trap "" TERM HUP; echo $$ > left; while :; do sleep 0.1; done' & while ! [ -s left ]; do sleep 0.01; done; `
	for _, test := range []struct{ name, text string }{
		{"it ends", stubborn + "echo ready; exit 5"},
		{"its client is killed", stubborn + "echo ready; while :; do sleep 0.1; done"},
	} {
		cmd := h.command(test.text)
		begun(t, cmd, "ready")
		if !strings.Contains(test.text, "exit") {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		_ = cmd.Wait() // the server tells
		_ = h.ended()
		text, err := os.ReadFile(filepath.Join(cmd.Dir, "left"))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s: process %d is left: %v", test.name, pid, err)
		}
	}
}

func TestEnvironment(t *testing.T) {
	h := serve(t, "TEST*")
	cmd := h.command(`echo "$TESTED $LANG $OTHER $HOME"`)
	cmd.Env = append(os.Environ(), "TESTED=yes", "LANG=xx", "OTHER=no", "HOME=/other")
	out, err := cmd.Output()
	if who, _ := user.Current(); err != nil || string(out) != "yes xx  "+who.HomeDir+"\n" {
		t.Errorf("%q, %v", out, err)
	}
}
