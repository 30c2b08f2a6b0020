package command

import (
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
	d := wire.Directory{Path: dir, Proof: proofName + "test", Secret: strings.Repeat("s", 26)}
	if err := os.WriteFile(filepath.Join(dir, d.Proof), []byte(d.Secret), 0o600); err != nil {
		h.t.Fatal(err)
	}
	if err := conn.Send(wire.Open{Purpose: wire.PurposeCommand, Command: &wire.Command{Args: args, Directory: d}}); err != nil {
		h.t.Fatal(err)
	}
	return conn
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
	text, err := os.ReadFile(filepath.Join(cmd.Dir, "left"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	// One that has ended may wait for its new parent to notice.
	if id, err := process.Find(pid); err == nil && id.Alive() {
		t.Errorf("process %d is left", pid)
	}
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
