package command

import (
	"bytes"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// opened is a connection of a client that says by itself what is to run, and in which directory.
func (h *host) opened(dir string, args ...string) *wire.Conn {
	h.t.Helper()
	b, err := identity.ReadBundle(h.bundle)
	if err != nil {
		h.t.Fatal(err)
	}
	raw, err := tls.Dial("tcp", h.address, b.Config("localhost"))
	if err != nil {
		h.t.Fatal(err)
	}
	conn := wire.New(raw)
	h.t.Cleanup(func() { _ = conn.Close() }) // which may have ended
	d := wire.Directory{Path: wire.ExactText(dir), Proof: proofName + "test", Secret: strings.Repeat("s", 26)}
	if err := os.WriteFile(filepath.Join(dir, d.Proof), []byte(d.Secret), 0o600); err != nil {
		h.t.Fatal(err)
	}
	if err := conn.Send(wire.Open{Purpose: wire.PurposeCommand, Command: &wire.Command{Args: args, Directory: d}}); err != nil {
		h.t.Fatal(err)
	}
	return conn
}

// left is the process whose number a command has written into a file, and its being there is an error.
func left(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	// One that has ended may wait for its new parent to notice.
	if id, err := process.Find(pid); err == nil && id.Alive() {
		_ = id.Signal(syscall.SIGKILL) // it is not the test's
		t.Errorf("process %d is left", pid)
	}
}

// A command that stops its attendant ends all the same, with what it has started.
func TestStoppedAttendant(t *testing.T) {
	h := serve(t)
	cmd := h.command("setsid sh -c 'echo $$ > left; exec sleep 1000' & while ! [ -s left ]; do sleep 0.01; done; kill -STOP $PPID; echo ready; sleep 1000")
	begun(t, cmd, "ready")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the server tells
	if err := h.ended(); !errors.Is(err, ErrClient) {
		t.Errorf("it ended with %v", err)
	}
	left(t, filepath.Join(cmd.Dir, "left"))
}

// An attendant that ends before its command begins, as where its user may have no more threads, is told of in words.
func TestAttendantEndsEarly(t *testing.T) {
	for _, text := range []string{"exit 2", "kill -ABRT $$", "head -c 1 <&3; exit 2"} {
		h := serve(t)
		h.run.Attendant = []string{"/bin/sh", "-c", "echo 'goroutine 1 [running]' >&2; " + text}
		cmd := h.command("true")
		var errs bytes.Buffer
		cmd.Stderr = &errs
		err := cmd.Run()
		if said := errs.String(); err == nil || cmd.ProcessState.ExitCode() != 125 || !strings.Contains(said, "let its user have more processes") || strings.Contains(said, "goroutine") {
			t.Errorf("%s: %v, %s", text, err, said)
		}
		if err := h.ended(); err == nil {
			t.Errorf("%s: it was served", text)
		}
	}
}

// A command that kills its attendant ends with it, also one to which the kernel sends no signal for that any more, and so does
// what it has started.
func TestKilledAttendant(t *testing.T) {
	h := serve(t)
	cmd := h.command("sh -c 'echo $$ > left; while :; do sleep 0.1; done' & while ! [ -s left ]; do sleep 0.01; done; kill -KILL $PPID; sleep 1000")
	_ = cmd.Run() // the state tells
	if status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
	if err := h.ended(); err != nil {
		t.Error(err)
	}
	left(t, filepath.Join(cmd.Dir, "left"))
}

// What a command that kills its attendant leaves in a session of its own keeps the streams, and is told of before anybody waits
// for their end.
func TestKilledAttendantLeavesASession(t *testing.T) {
	h := serve(t)
	cmd := h.command("setsid sh -c 'echo $$ > left; exec sleep 1000' & while ! [ -s left ]; do sleep 0.01; done; kill -KILL $PPID; sleep 1000")
	file, told := filepath.Join(cmd.Dir, "left"), make(chan bool, 2)
	over := func(clean bool) {
		told <- clean
		text, err := os.ReadFile(file)
		if err != nil || clean {
			return
		}
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		id, err := process.Find(pid)
		for err == nil && id.Alive() { // as the agent does
			_ = id.Signal(syscall.SIGKILL) // it may have ended
			<-time.After(leavePause)
		}
	}
	h.over.Store(&over)
	_ = cmd.Run() // the state tells
	if status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
	if err := h.ended(); err != nil {
		t.Error(err)
	}
	if clean := <-told; clean {
		t.Error("nothing was said to be left")
	}
	left(t, file)
}

// A client that takes nothing of what its command wrote does not hold up the server's end, and hears of it.
func TestEndWhileNothingIsTaken(t *testing.T) {
	h := serve(t)
	conn := h.opened(t.TempDir(), "head", "-c", strconv.Itoa(wire.Room+wire.Room/16), "/dev/zero")
	for got := 0; got < wire.Room-pieceBytes; {
		f, err := conn.Read()
		if err != nil {
			t.Fatal(err)
		}
		if f.Kind == wire.KindData {
			got += len(f.Content)
		}
	}
	for len(process.Descendants(os.Getpid())) > 0 {
		if err := conn.Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(leavePause)
	}
	why := errors.New("the client was taken out")
	h.end(why)
	for {
		f, err := conn.Read()
		if err != nil {
			t.Fatal(err)
		}
		var a wire.Answer
		if f.Kind == wire.KindMessage && f.Decode(&a) == nil && a.Ended != nil {
			if a.Ended.Text != why.Error() {
				t.Errorf("it hears %q", a.Ended.Text)
			}
			break
		}
	}
	_ = conn.Close() // it has heard why
	if err := h.ended(); !errors.Is(err, why) {
		t.Errorf("it ended with %v", err)
	}
}

// What no command can end with is not made a status of the client's.
func TestSaneEnds(t *testing.T) {
	for _, e := range []wire.Exited{{}, {Status: 255}, {Signal: 1}, {Signal: 64}} {
		if err := sane(e); err != nil {
			t.Error(err)
		}
	}
	for _, e := range []wire.Exited{{Status: 256}, {Status: -1}, {Signal: 65}, {Signal: -128}} {
		if err := sane(e); !errors.Is(err, wire.ErrFrame) {
			t.Errorf("%+v: %v", e, err)
		}
	}
}

// A client hears why its command does not begin, also where that is the host's fault.
func TestFaultsOfTheHostAreTold(t *testing.T) {
	h := serve(t)
	h.run.Attendant = []string{"/nonexistent/attendant"}
	conn := h.opened(t.TempDir(), "true")
	var a wire.Answer
	if err := conn.Receive(&a); err != nil || a.Refused == nil || a.Refused.Code != wire.CodeHost || !strings.Contains(a.Refused.Text, "attendant") {
		t.Errorf("it hears %+v, %v", a, err)
	}
}
