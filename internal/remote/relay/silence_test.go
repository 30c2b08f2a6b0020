package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/remote/identity/identitytest"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// side makes connections of this side with a host.
type side struct {
	t      *testing.T
	server *tls.Config
	client *tls.Config
}

func newSide(t *testing.T) *side {
	t.Helper()
	authority := identitytest.NewAuthority(t, "far")
	return &side{t, authority.Server, authority.Bundle(t, "here").Config("far")}
}

// connect makes a connection. A host that does not beat reads, and never says a word.
func (s *side) connect(beats bool) *wire.Conn {
	s.t.Helper()
	ours, theirs := net.Pipe()
	far := tls.Server(theirs, s.server)
	go func() {
		switch {
		case far.Handshake() != nil:
		case beats:
			wire.New(far).Drain()
		default:
			_, _ = io.Copy(io.Discard, far)
		}
	}()
	near := tls.Client(ours, s.client)
	if err := near.Handshake(); err != nil {
		s.t.Fatal(err)
	}
	return wire.New(near)
}

// pair is a connection of this side with a host, both of whose ends are the test's.
func (s *side) pair() (near, far *wire.Conn) {
	s.t.Helper()
	ours, theirs := net.Pipe()
	server, client := tls.Server(theirs, s.server), tls.Client(ours, s.client)
	shaken := make(chan error, 1)
	go func() { shaken <- server.Handshake() }()
	if err := client.Handshake(); err != nil {
		s.t.Fatal(err)
	}
	if err := <-shaken; err != nil {
		s.t.Fatal(err)
	}
	far = wire.New(server)
	go far.Drain()
	return wire.New(client), far
}

// recorded runs a test in a bubble, with a relay that has a folder for its record.
func recorded(t *testing.T, test func(t *testing.T, s *side, r *Relay)) {
	dir := t.TempDir()
	if err := os.Mkdir(RecordFolder(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := newSide(t) // whose certificates are of the test's own time
		test(t, s, New(Spec{Dir: dir, Socket: filepath.Join(dir, "client", "worker.sock")}, nil, func(string) {}))
	})
}

// A link may hear of the silence of its host before its share does. The share has ended all the same when the program learns of it.
// The share of a host that is heard goes on.
func TestShareEndsBeforeItsProgram(t *testing.T) {
	for name, heard := range map[string]bool{"its host is gone": false, "its link is": true} {
		t.Run(name, func(t *testing.T) {
			recorded(t, func(t *testing.T, s *side, r *Relay) {
				l := &link{relay: r, remote: s.connect(false)}
				time.Sleep(wire.Beat) // the share hears the last beat
				share := &Share{Host: Host{Name: "far"}, conn: s.connect(heard), ended: make(chan struct{})}
				go share.follow(t.Context())
				r.hold(share)
				l.remote.Drain()
				l.reason(share, l.remote.Err())
				record, err := ReadRecord(r.spec.Dir)
				if err != nil || heard == (record.State == StateEnded) {
					t.Errorf("lists are told %+v, %v", record, err)
				}
				share.End()
			})
		})
	}
}

// A program that begins when its host is gone cannot connect, and may find that out before the share does. The share has ended all
// the same when the program learns of it. A host that is heard has refused the program alone, which is told at once.
func TestShareEndsBeforeAProgramThatCannotConnect(t *testing.T) {
	for name, heard := range map[string]bool{"its host is gone": false, "its host is heard": true} {
		t.Run(name, func(t *testing.T) {
			recorded(t, func(t *testing.T, s *side, r *Relay) {
				share := &Share{Host: Host{Name: "far"}, conn: s.connect(heard), ended: make(chan struct{})}
				go share.follow(t.Context())
				r.hold(share)
				time.Sleep(wire.Silence / 2)
				begun := time.Now()
				why := (&link{relay: r}).unconnected(t.Context(), share, errSlow)
				record, err := ReadRecord(r.spec.Dir)
				switch {
				case heard:
					if took := time.Since(begun); took > 0 || why != "far: "+errSlow.Error() || record.State == StateEnded {
						t.Errorf("after %v it is told %q, and lists %+v", took, why, record)
					}
				case err != nil || record.State != StateEnded || why != share.Why() || why != record.Why:
					t.Errorf("it is told %q, and lists %+v, %v", why, record, err)
				}
				share.End()
			})
		})
	}
}

// A program that begins while the network has no way to its host is connected once there is one. One that the host refuses is not
// tried again, and neither is one whose share has ended or for which it takes too long.
func TestProgramBeginsInAPause(t *testing.T) {
	gone := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", unix.EHOSTUNREACH)}
	for name, test := range map[string]struct {
		pause, ends time.Duration
		after       error
		want        error
		took        time.Duration
	}{
		"it is short":         {pause: 6 * time.Second, ends: time.Hour, took: 6 * time.Second},
		"it is refused then":  {pause: wire.Beat, ends: time.Hour, after: errSlow, want: errSlow, took: wire.Beat},
		"its share ends":      {pause: time.Hour, ends: time.Second / 4, want: gone, took: time.Second / 4},
		"it does not go back": {pause: time.Hour, ends: time.Hour, want: gone, took: dialTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				share := &Share{ended: make(chan struct{})}
				end := time.AfterFunc(test.ends, func() { close(share.ended) })
				defer end.Stop()
				begun := time.Now()
				err := (&link{}).connectAgain(t.Context(), share, func(context.Context, *Share) error {
					if time.Since(begun) < test.pause {
						return gone
					}
					return test.after
				})
				if took := time.Since(begun); !errors.Is(err, test.want) || took != test.took {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}

// A worker's end that the host passes on is told at once: nothing else can be the reason. A share that has ended is.
func TestWorkerEndIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSide(t)
		near, far := s.pair()
		ours, program := unixPair(t)
		l := &link{relay: New(Spec{Socket: filepath.Join(t.TempDir(), "worker.sock")}, nil, func(string) {}), unix: ours, process: 7, remote: near}
		share := &Share{Host: Host{Name: "far"}, ended: make(chan struct{})}
		begun := time.Now()
		go func() { _ = far.End(0) }() // that it comes is what is tested
		l.pass(share)
		if took := time.Since(begun); took > 0 {
			t.Errorf("it is told after %v", took)
		}
		if text, err := os.ReadFile(l.reasonFile()); err != nil || string(text) != "its worker at far has ended\n" {
			t.Errorf("%q, %v", text, err)
		}
		_ = program.Close()
		_ = far.Close()
		close(share.ended)
		if why := l.workerEnded(&Share{ended: share.ended, why: "bob stopped it"}); why != "bob stopped it" {
			t.Errorf("of a share that has ended: %q", why)
		}
	})
}

// unixPair is a connection of this process with itself.
func unixPair(t *testing.T) (ours, theirs *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "end")
		conn, err := net.FileConn(file)
		_ = file.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i], _ = conn.(*net.UnixConn)
	}
	return ends[0], ends[1]
}
