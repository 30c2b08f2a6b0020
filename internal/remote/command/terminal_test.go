package command

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// sit has a command at a terminal of the test's. The person reads lines and types.
func sit(t *testing.T, cmd *exec.Cmd, size wire.Window) (person *os.File, lines *bufio.Reader) {
	t.Helper()
	ours, theirs, err := openTerminal(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	defer theirs.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	// It leads a session, as a shell's first program does. What it stops is only itself.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return ours, bufio.NewReader(ours)
}

func expect(t *testing.T, lines *bufio.Reader, want string) {
	t.Helper()
	line, err := lines.ReadString('\n')
	if strings.TrimRight(line, "\r\n") != want {
		t.Fatalf("the terminal shows %q, %v; want %q", line, err, want)
	}
}

func TestTerminal(t *testing.T) {
	h := serve(t)
	cmd := h.command(`test -t 0 && test -t 1 && test -t 2 && stty size && echo $TERM; trap 'stty size; exit 3' WINCH; trap 'echo int' INT; stty -echo; echo ready; read x; echo "<$x>"; while :; do sleep 0.1; done`)
	cmd.Env = append(os.Environ(), "TERM=dumb")
	person, lines := sit(t, cmd, wire.Window{Rows: 33, Columns: 77})
	expect(t, lines, "33 77")
	expect(t, lines, "dumb")
	expect(t, lines, "ready")
	if _, err := person.WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	expect(t, lines, "<hello>")
	if _, err := person.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	expect(t, lines, "int")
	if err := resize(person, wire.Window{Rows: 40, Columns: 100}); err != nil {
		t.Fatal(err)
	}
	expect(t, lines, "40 100")
	_ = cmd.Wait() // the state tells
	if cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
	if err := h.ended(); err != nil {
		t.Error(err)
	}
}

// Where a terminal is for output only, its keys still signal the command.
func TestTerminalWithoutInput(t *testing.T) {
	h := serve(t)
	cmd := h.command(`test -t 1 && ! test -t 0 || exit 4; trap 'exit 3' INT; echo ready; while :; do sleep 0.1; done`)
	args := append([]string{"-c", `exec "$@" </dev/null`, "sh"}, cmd.Args...)
	shell := exec.Command("sh", args...)
	shell.Dir = cmd.Dir
	person, lines := sit(t, shell, wire.Window{Rows: 24, Columns: 80})
	expect(t, lines, "ready")
	if _, err := person.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	_ = shell.Wait() // the state tells
	if shell.ProcessState.ExitCode() != 3 {
		t.Errorf("it ended with %v", shell.ProcessState)
	}
	if err := h.ended(); err != nil {
		t.Error(err)
	}
}

// A terminal is as it was, whatever ended the command.
func TestTerminalIsRestored(t *testing.T) {
	h := serve(t)
	cmd := h.command("exit 0")
	ours, theirs, err := openTerminal(wire.Window{})
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	before, err := unix.IoctlGetTermios(int(theirs.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	if err := errors.Join(cmd.Run(), h.ended()); err != nil {
		t.Error(err)
	}
	after, err := unix.IoctlGetTermios(int(theirs.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("%+v became %+v: %v", before, after, err)
	}
}

// Ctrl-Z stops client and command, and both go on.
func TestStop(t *testing.T) {
	h := serve(t)
	// A shell with jobs between the terminal and the client, so that somebody can have it go on.
	cmd := h.command(`stty -echo; echo ready; read x; echo "<$x>"`)
	args := append([]string{"-c", `set -m; "$@" & fg >/dev/null; echo stopped; read y; fg >/dev/null; echo over $?`, "sh"}, cmd.Args...)
	shell := exec.Command("sh", args...)
	shell.Dir = cmd.Dir
	person, lines := sit(t, shell, wire.Window{Rows: 24, Columns: 80})
	expect(t, lines, "ready")
	if _, err := person.WriteString("\x1a"); err != nil {
		t.Fatal(err)
	}
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(line) == "stopped" { // after what the shell says of its job
			break
		}
	}
	if _, err := person.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := person.WriteString("more\n"); err != nil {
		t.Fatal(err)
	}
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(line) == "<more>" {
			break
		}
	}
	expect(t, lines, "over 0")
	if err := h.ended(); err != nil {
		t.Error(err)
	}
}
