package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/identity/identitytest"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// longestWait bounds every wait for something that takes milliseconds, on a busy machine.
const longestWait = time.Minute

// stage is a server with a host of the test's, and what its clients have.
type stage struct {
	t         *testing.T
	authority *identitytest.Authority
	address   string
	host      *fakeHost
	server    *Server
	log       *logged
	// stop ends the server, and returns when it has ended.
	stop func() error
}

// newStage starts a server at loopback, which ends with the test.
func newStage(t *testing.T) *stage {
	t.Helper()
	authority := identitytest.NewAuthority(t, "localhost")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, authority: authority, address: listener.Addr().String(), host: newFakeHost(t), log: &logged{}}
	s.server = &Server{Host: s.host, TLS: authority.Server, Name: identity.Client, hello: time.Hour, Log: slog.New(slog.NewTextHandler(s.log, nil))}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(ctx, listener) }()
	s.stop = sync.OnceValue(func() error {
		cancel()
		return <-served
	})
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// logged keeps what a server logs.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// shake connects as a client of that name.
func (s *stage) shake(name string) *tls.Conn {
	s.t.Helper()
	conn, err := tls.Dial("tcp", s.address, s.authority.Bundle(s.t, name).Config("localhost"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.NetConn().Close() })
	return conn
}

// open connects and says what for.
func (s *stage) open(name string, open wire.Open) *wire.Conn {
	s.t.Helper()
	w := wire.New(s.shake(name))
	s.t.Cleanup(func() { _ = w.Close() })
	if err := w.Send(open); err != nil {
		s.t.Fatal(err)
	}
	return w
}

// answer reads an answer.
func (s *stage) answer(w *wire.Conn) wire.Answer {
	s.t.Helper()
	var a wire.Answer
	if err := w.Receive(&a); err != nil {
		s.t.Fatal(err)
	}
	return a
}

// refused wants a refusal with a code and a text, and then the end of the connection.
func (s *stage) refused(w *wire.Conn, code, text string) {
	s.t.Helper()
	a := s.answer(w)
	if a.Refused == nil || a.Refused.Code != code || !strings.Contains(a.Refused.Text, text) {
		s.t.Errorf("%+v is no refusal %s with %q", a.Refused, code, text)
	}
	if _, err := w.Read(); !errors.Is(err, io.EOF) {
		s.t.Errorf("after the refusal: %v", err)
	}
}

// share takes a share.
func (s *stage) share(name string) (*wire.Conn, *wire.Granted, *fakeShare) {
	s.t.Helper()
	w := s.open(name, wire.Open{Purpose: wire.PurposeShare, Take: &wire.Take{Host: "laptop", User: name}})
	a := s.answer(w)
	if a.Granted == nil {
		s.t.Fatalf("%+v is no share", a)
	}
	return w, a.Granted, within(s.t, s.host.taken)
}

// link connects a process of a share with a worker.
func (s *stage) link(name, secret string) (*wire.Conn, net.Conn) {
	s.t.Helper()
	w := s.open(name, wire.Open{Purpose: wire.PurposeLink, Share: secret})
	if a := s.answer(w); a.Linked == nil {
		s.t.Fatalf("%+v is no link", a)
	}
	return w, within(s.t, s.host.workers)
}

// within takes what comes.
func within[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(longestWait):
		t.Fatal("nothing comes")
	}
	panic("unreachable")
}

// eventually waits for a condition that others make true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for over := time.Now().Add(longestWait); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(over) {
			t.Fatal(what + ": not so")
		}
	}
}

// fakeHost is a host whose workers are ends of Unix sockets.
type fakeHost struct {
	t       *testing.T
	taken   chan *fakeShare
	workers chan net.Conn
	dir     string

	mu sync.Mutex
	// wait, if not nil, is waited for before a share is granted, and refuse, if not nil, is why none is.
	wait   chan struct{}
	refuse error
	shares int
}

func newFakeHost(t *testing.T) *fakeHost {
	return &fakeHost{t: t, taken: make(chan *fakeShare, 64), workers: make(chan net.Conn, 4096), dir: t.TempDir()}
}

// Inventory implements [Host].
func (h *fakeHost) Inventory(_ context.Context, who Client) (*wire.Inventory, error) {
	return &wire.Inventory{Host: "far", Version: who.Name + " at " + who.Address}, nil
}

// Command implements [Host].
func (h *fakeHost) Command(_ context.Context, who Client, _ wire.Take, c wire.Command, w *wire.Conn) error {
	if h.refuse != nil {
		return h.refuse
	}
	return w.Send(wire.Answer{Exited: &wire.Exited{Status: len(c.Args) + len(who.Name)}})
}

// Take implements [Host].
func (h *fakeHost) Take(ctx context.Context, who Client, take wire.Take, told func(wire.Queued)) (Share, error) {
	h.mu.Lock()
	wait, refuse := h.wait, h.refuse
	h.mu.Unlock()
	if wait != nil {
		told(wire.Queued{Place: 1, Of: 2, Reason: "it is full"})
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if refuse != nil {
		return nil, refuse
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shares++
	s := &fakeShare{host: h, who: who, take: take, number: h.shares, ended: make(chan wire.Ended, 1), over: make(chan struct{}), asked: make(chan struct{})}
	h.taken <- s
	return s, nil
}

type fakeShare struct {
	host   *fakeHost
	who    Client
	take   wire.Take
	number int
	ended  chan wire.Ended
	over   chan struct{}
	once   sync.Once
	ending atomic.Bool
	asked  chan struct{} // closed when it said that it is about to end
}

func (s *fakeShare) Granted() wire.Granted {
	return wire.Granted{ID: fmt.Sprint(s.number), Name: "share", UUIDs: []string{"GPU-0"}, Memory: 1 << 30}
}
func (s *fakeShare) Ended() <-chan wire.Ended { return s.ended }
func (s *fakeShare) Ending(context.Context) bool {
	if !s.ending.Load() {
		return false
	}
	close(s.asked)
	return true
}
func (s *fakeShare) End() { s.once.Do(func() { close(s.over) }) }

// Dial gives one end to the server and the other to the test.
func (s *fakeShare) Dial(ctx context.Context) (net.Conn, error) {
	path := filepath.Join(s.host.dir, "w")
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	worker, err := listener.Accept()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	s.host.t.Cleanup(func() { _ = worker.Close() })
	s.host.workers <- worker
	return conn, nil
}
