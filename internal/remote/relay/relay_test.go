package relay_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/remote/relay"
	"github.com/divvy-gpu/divvy/internal/remote/relay/relaytest"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

const gib = 1 << 30

// longest bounds every wait for something that takes milliseconds, on a busy machine.
const longest = 2 * time.Minute

// inventory is that of a host with one GPU, of which so many GiB are free.
func inventory(free uint64) func() *wire.Inventory {
	return func() *wire.Inventory {
		return &wire.Inventory{Host: "a", CUDA: 12040, GPUs: []alloc.GPU{{UUID: "GPU-1", Index: 3, Model: "A100", Capacity: 80 * gib, Granted: (80 - free) * gib, ContextBytes: gib / 2}}}
	}
}

// granted is what a host answers that gives a share.
func granted(take wire.Take) wire.Answer {
	return wire.Answer{Granted: &wire.Granted{
		Secret: "secret", ID: "t1", Name: "given", UUIDs: []string{"GPU-1"}, Memory: take.Request.Memory.InBytes(), Lacks: []string{"cuNew"},
	}}
}

// echo stands for a worker that says what it hears.
func echo() (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		_, _ = io.Copy(theirs, theirs)
	}()
	return ours, nil
}

// scene is a relay that serves.
type scene struct {
	t      *testing.T
	relay  *relay.Relay
	ready  *relay.Ready
	spec   relay.Spec
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// specFor is that of a relay of this process.
func specFor(t *testing.T, hosts ...string) relay.Spec {
	t.Helper()
	dir, err := os.MkdirTemp("", "relay-") // whose path is short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	share := filepath.Join(dir, "one")
	if err := errors.Join(os.MkdirAll(relay.RecordFolder(share), 0o700), os.Mkdir(filepath.Join(share, "client"), 0o700)); err != nil {
		t.Fatal(err)
	}
	self, err := process.Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	lock, err := relay.Lock(share)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	return relay.Spec{
		Hosts: hosts, Dir: share, Socket: filepath.Join(share, "client", "worker.sock"), Process: self,
		Take: wire.Take{Request: v1alpha1.ShareRequest{Memory: v1alpha1.Bytes(8 * gib), ShareConfig: v1alpha1.ShareConfig{Backend: v1alpha1.BackendRemote}}, Host: "here", User: "ada", Command: []string{"train"}},
	}
}

// begin starts a relay.
func begin(t *testing.T, spec relay.Spec) *scene {
	t.Helper()
	s := &scene{t: t, spec: spec}
	ctx, cancel := context.WithCancel(t.Context())
	s.cancel = cancel
	s.relay = relay.New(spec, relay.Find(spec.Hosts), func(text string) { t.Log(text) })
	var err error
	if s.ready, err = s.relay.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: spec.Socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	s.done.Go(func() { s.relay.Serve(ctx, socket) })
	t.Cleanup(s.end)
	return s
}

func (s *scene) end() {
	s.cancel()
	s.done.Wait()
}

// number is the process that test programs say they are.
const number = 4711

// connect is a program that connects and says its hello.
func (s *scene) connect() net.Conn {
	s.t.Helper()
	conn, err := net.Dial("unix", s.spec.Socket)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(longest))
	hello := make([]byte, 32)
	binary.NativeEndian.PutUint32(hello[16:], 1)
	binary.NativeEndian.PutUint32(hello[20:], number)
	if _, err := conn.Write(hello); err != nil {
		s.t.Fatal(err)
	}
	return conn
}

// greeted is a program whose worker has answered.
func (s *scene) greeted() net.Conn {
	s.t.Helper()
	conn := s.connect()
	hello := make([]byte, 32)
	if _, err := io.ReadFull(conn, hello); err != nil {
		s.t.Fatal(err)
	}
	if hello[16] != 2 || hello[20] != 0 {
		s.t.Fatalf("the hello is %v", hello)
	}
	return conn
}

// reason waits until a program's link has ended, and returns what its library would say.
func (s *scene) reason(conn net.Conn) string {
	s.t.Helper()
	if n, err := io.Copy(io.Discard, conn); n > 0 || err != nil {
		s.t.Fatalf("%d bytes, %v", n, err)
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(s.spec.Socket), "ended-4711"))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSuffix(string(text), "\n")
}

// record is what lists tell.
func (s *scene) record() relay.Listed {
	s.t.Helper()
	all, err := relay.List(filepath.Dir(s.spec.Dir))
	if err != nil || len(all) != 1 {
		s.t.Fatalf("%+v, %v", all, err)
	}
	return all[0]
}

// eventually waits for a condition that another goroutine makes true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(longest)
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not so after %v", what, longest)
		}
		<-ticker.C
	}
}

func TestBytesPassBothWays(t *testing.T) {
	server := relaytest.NewAuthority(t).Start(t, &relaytest.Server{Inventory: inventory(80), Take: granted, Link: echo})
	s := begin(t, specFor(t, server.Address))
	if s.ready.Host != server.Address || s.ready.Name != "given" || s.ready.GPUs != 1 || !slices.Equal(s.ready.Lacks, []string{"cuNew"}) {
		t.Errorf("ready %+v", s.ready)
	}
	takes, _ := server.Taken()
	if len(takes) != 1 || takes[0].User != "ada" || takes[0].Host != "here" || takes[0].Wait {
		t.Errorf("taken %+v", takes)
	}
	var all sync.WaitGroup
	for range 3 {
		conn := s.greeted()
		sent := make([]byte, 3<<20+17)
		_, _ = rand.Read(sent)
		all.Go(func() {
			if _, err := conn.Write(sent); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("it came back changed, %v", err)
			}
		})
	}
	all.Wait()
	r := s.record()
	if r.State != relay.StateTaken || r.Host != server.Address || r.Share != "given" || r.Memory != 8*gib || len(r.GPUs) != 1 || r.GPUs[0].Model != "A100" || r.GPUs[0].Index != 3 || len(r.Processes) != 3 {
		t.Errorf("listed %+v", r)
	}
	s.end()
	if r := s.record(); r.State != relay.StateEnded || r.Why == "" {
		t.Errorf("after the command's end %+v", r)
	}
	eventually(t, "the share is given back", func() bool { _, held := server.Taken(); return held == 0 })
}

// Other programs of the share find a program by its worker's number, from before it hears its worker until its end.
func TestWorkersAreNamed(t *testing.T) {
	const worker = 900
	server := relaytest.NewAuthority(t).Start(t, &relaytest.Server{Inventory: inventory(80), Take: granted, Link: func() (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			hello := make([]byte, 32)
			binary.NativeEndian.PutUint32(hello[20:], worker)
			for _, piece := range [][]byte{hello[:21], hello[21:]} { // as it may come
				if _, err := theirs.Write(piece); err != nil {
					return
				}
			}
			_, _ = io.Copy(io.Discard, theirs)
		}()
		return ours, nil
	}})
	s := begin(t, specFor(t, server.Address))
	conn := s.connect()
	if _, err := io.ReadFull(conn, make([]byte, 32)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(filepath.Dir(s.spec.Socket), "worker-900")
	if text, err := os.ReadFile(file); err != nil || string(text) != "4711\n" {
		t.Errorf("of worker %d the relay says %q, %v", worker, text, err)
	}
	conn.Close()
	eventually(t, "its worker is forgotten", func() bool {
		_, err := os.Stat(file)
		return errors.Is(err, os.ErrNotExist)
	})
}

// Whoever ends, the program's link does, and it says why. A later program hears the same.
func TestWhyItEnded(t *testing.T) {
	authority := relaytest.NewAuthority(t)
	for name, c := range map[string]struct {
		end   func(*relaytest.Server)
		words []string
		over  bool
	}{
		"the server stops the share": {func(s *relaytest.Server) { s.End("bob stopped it: maintenance") }, []string{"bob stopped it: maintenance"}, true},
		"the server dies":            {(*relaytest.Server).Die, []string{"the server at 127.0.0.1:", " has ended"}, true},
		"the worker dies":            {(*relaytest.Server).EndLinks, []string{"its worker at 127.0.0.1:", "has ended"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := authority.Start(t, &relaytest.Server{Inventory: inventory(80), Take: granted, Link: echo})
			s := begin(t, specFor(t, server.Address))
			conn := s.greeted()
			c.end(server)
			why := s.reason(conn)
			for _, word := range c.words {
				if !strings.Contains(why, word) {
					t.Errorf("it says %q", why)
				}
			}
			if !c.over {
				s.greeted()
				return
			}
			if again := s.reason(s.connect()); !strings.Contains(again, why) {
				t.Errorf("a later program hears %q", again)
			}
			if r := s.record(); r.State != relay.StateEnded || r.Why != why || r.Ended == nil {
				t.Errorf("listed %+v", r)
			}
		})
	}
}

// With WhenUsed a share is there from the first process to the last.
func TestWhenUsed(t *testing.T) {
	authority := relaytest.NewAuthority(t)
	server := authority.Start(t, &relaytest.Server{Inventory: inventory(80), Take: granted, Link: echo})
	spec := specFor(t, server.Address)
	spec.WhenUsed = true
	s := begin(t, spec)
	for round := range 2 {
		if takes, held := server.Taken(); len(takes) != round || held != 0 {
			t.Fatalf("round %d: %d takes, %d held", round, len(takes), held)
		}
		one, two := s.greeted(), s.greeted()
		if takes, held := server.Taken(); len(takes) != round+1 || held != 1 {
			t.Errorf("round %d: with two programs %d takes, %d held", round, len(takes), held)
		}
		one.Close()
		eventually(t, "one program is left", func() bool { return len(s.record().Processes) == 1 })
		if _, held := server.Taken(); held != 1 {
			t.Error("the share ended with the first program")
		}
		two.Close()
		eventually(t, "the share is given back", func() bool { _, held := server.Taken(); return held == 0 })
		eventually(t, "lists tell it", func() bool { return s.record().State == relay.StateReady })
	}
	server.Take = func(wire.Take) wire.Answer {
		return wire.Answer{Refused: &wire.Refused{Code: "refused", Text: "GPU 3 is full"}}
	}
	if why := s.reason(s.connect()); !strings.Contains(why, "GPU 3 is full") {
		t.Errorf("a program that gets no share hears %q", why)
	}
}

// A program that does not read while data comes for it is not dead, and its share neither.
func TestProgramThatDoesNotRead(t *testing.T) {
	server := relaytest.NewAuthority(t).Start(t, &relaytest.Server{Inventory: inventory(80), Take: granted, Link: func() (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			hello := make([]byte, 32)
			if _, err := io.ReadFull(theirs, hello); err != nil {
				return
			}
			_, _ = theirs.Write(append(hello, make([]byte, 8<<20)...))
		}()
		return ours, nil
	}})
	s := begin(t, specFor(t, server.Address))
	conn := s.greeted()
	<-time.After(wire.Silence + 2*wire.Beat) // the time of the protocol is what is tested
	if r := s.record(); r.State != relay.StateTaken {
		t.Fatalf("listed %+v", r)
	}
	if n, err := io.Copy(io.Discard, conn); n != 8<<20 || err != nil {
		t.Errorf("%d bytes came, %v", n, err)
	}
}
