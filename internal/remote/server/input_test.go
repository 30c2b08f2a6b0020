package server

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// dial connects without a word.
func (s *stage) dial() net.Conn {
	s.t.Helper()
	conn, err := new(net.Dialer).DialContext(s.t.Context(), "tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// well wants a client to be served.
func (s *stage) well() {
	s.t.Helper()
	if a := s.answer(s.open("well", wire.Open{Purpose: wire.PurposeInventory})); a.Inventory == nil {
		s.t.Errorf("another client is not served: %+v", a)
	}
}

// A handshake that fails ends the connection, and nobody else notices.
func TestFaultyHandshakes(t *testing.T) {
	s := newStage(t)
	other, err := identity.NewAuthority(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := other.Issue("ada", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	mine, err := s.authority.Issue("ada", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	of := func(b *identity.Bundle, change func(*tls.Config)) *tls.Config {
		c := b.Config("localhost").Clone()
		c.InsecureSkipVerify, c.VerifyConnection = true, nil
		change(c)
		return c
	}
	for name, config := range map[string]*tls.Config{
		"foreign certificate": of(foreign, func(*tls.Config) {}),
		"no certificate":      of(mine, func(c *tls.Config) { c.Certificates, c.GetClientCertificate = nil, nil }),
		"another protocol":    of(mine, func(c *tls.Config) { c.NextProtos = []string{"h2"} }),
		"no protocol":         of(mine, func(c *tls.Config) { c.NextProtos = nil }),
		"an older TLS":        of(mine, func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 }),
	} {
		conn := tls.Client(s.dial(), config)
		if err := conn.Handshake(); err == nil {
			_, err = conn.Read(make([]byte, 1)) // a server judges a client's certificate after its own handshake is done
			if err == nil {
				t.Errorf("%s: it is served", name)
			}
		}
	}
	half := s.dial()
	if _, err := half.Write([]byte("\x16\x03\x01\x02\x00\x01\x00")); err != nil {
		t.Fatal(err)
	}
	nothing := s.dial()
	if _, err := nothing.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(nothing); err != nil && !isReset(err) {
		t.Error(err)
	}
	s.well()
	_ = half.Close()
	eventually(t, "no stranger is counted", func() bool {
		s.server.gate.mu.Lock()
		defer s.server.gate.mu.Unlock()
		return len(s.server.gate.strangers) == 0 && len(s.server.gate.from) == 0
	})
}

func isReset(err error) bool { return strings.Contains(err.Error(), "reset") }

// What a client says first must make sense; it hears what does not.
func TestFaultyFirstMessage(t *testing.T) {
	s := newStage(t)
	for name, frame := range map[string]string{
		"unknown field": "\x01\x00\x00\x00\x00\x00\x00\x24{\"purpose\":\"inventory\",\"colour\":\"red\"}",
		"no JSON":       "\x01\x00\x00\x00\x00\x00\x00\x05hello",
		"data":          "\x02\x00\x00\x00\x00\x00\x00\x05hello",
	} {
		conn := s.shake("ada")
		if _, err := conn.Write([]byte(frame)); err != nil {
			t.Fatal(err)
		}
		a := s.answer(wire.New(conn))
		if a.Refused == nil || a.Refused.Code != wire.CodeMessage || !strings.Contains(a.Refused.Text, "install the same version") {
			t.Errorf("%s: %+v", name, a)
		}
	}
	for name, frame := range map[string]string{
		"too long":     "\x01\x00\x00\x00\x00\x10\x00\x01",
		"unknown kind": "\x09\x00\x00\x00\x00\x00\x00\x00",
		"no frame":     "x",
	} {
		conn := s.shake("ada")
		if _, err := conn.Write([]byte(frame)); err != nil {
			t.Fatal(err)
		}
		_ = conn.CloseWrite()
		if text, err := io.ReadAll(conn); err != nil && !isReset(err) {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	s.well()
}

// A client that says more than it may while it has a share loses it.
func TestMoreThanItMay(t *testing.T) {
	s := newStage(t)
	w, _, taken := s.share("ada")
	if err := w.Send(wire.Open{Purpose: wire.PurposeInventory}); err != nil {
		t.Fatal(err)
	}
	within(t, taken.over)
	w, granted, _ := s.share("ada")
	l, worker := s.link("ada", granted.Secret)
	if err := l.Send(wire.Open{}); err != nil {
		t.Fatal(err)
	}
	if _, err := worker.Read(make([]byte, 1)); err == nil {
		t.Error("the worker's connection lives")
	}
	select {
	case <-w.Done():
		t.Error("the share ended with a link")
	default:
	}
}

// A thousand connections of one address that say nothing take nothing from a client that works, nor from those who come after
// them: the oldest give way.
func TestThousandConnections(t *testing.T) {
	s := newStage(t)
	_, granted, _ := s.share("ada")
	l, worker := s.link("ada", granted.Secret)
	conns := make([]net.Conn, 1000)
	for i := range conns {
		conns[i] = s.dial()
		if i%100 == 0 {
			echo(t, l, worker)
			s.well()
		}
	}
	s.well()
	if n := s.strangers(); n > mostStrangersFrom {
		t.Errorf("%d of them are let wait", n)
	}
	for i, conn := range conns[:len(conns)-mostStrangersFrom] {
		if err := conn.SetReadDeadline(time.Now().Add(longestWait)); err != nil {
			t.Fatal(err)
		}
		var timeout net.Error
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.As(err, &timeout) && timeout.Timeout() {
			t.Fatalf("connection %d is let wait: %v", i, err)
		}
	}
	echo(t, l, worker)
	s.well()
}

func (s *stage) strangers() int {
	s.server.gate.mu.Lock()
	defer s.server.gate.mu.Unlock()
	return len(s.server.gate.strangers)
}

// stall has connections that say nothing more give way after that time.
func (s *stage) stall(after time.Duration) {
	s.server.gate.mu.Lock()
	defer s.server.gate.mu.Unlock()
	s.server.gate.stall = after
}

// A connection that has begun to say who it is does not give way to those that say nothing.
func TestSpeakersStay(t *testing.T) {
	s := newStage(t)
	s.stall(time.Hour)
	mine, err := s.authority.Issue("ada", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	begun := s.dial()
	slow := &halting{Conn: begun, said: make(chan struct{}), wait: make(chan struct{})}
	speaker := tls.Client(slow, mine.Config("localhost"))
	shaken := make(chan error, 1)
	go func() { shaken <- speaker.Handshake() }()
	within(t, slow.said)
	eventually(t, "the kernel has what it said", func() bool {
		s.server.gate.mu.Lock()
		defer s.server.gate.mu.Unlock()
		return len(s.server.gate.strangers) == 1 && !mute(s.server.gate.strangers[0].conn, time.Hour)
	})
	for range 2 * mostStrangersFrom {
		s.dial()
	}
	s.well()
	close(slow.wait)
	if err := within(t, shaken); err != nil {
		t.Errorf("who has begun is cut off: %v", err)
	}
}

// Where all of an address have begun to say who they are, a new one is turned away, until one of them has stopped halfway for some
// time.
func TestHalfHandshakes(t *testing.T) {
	s := newStage(t)
	s.stall(time.Hour)
	for range mostStrangersFrom {
		if _, err := s.dial().Write([]byte("\x16\x03\x01\x02\x00\x01\x00")); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all have begun", func() bool {
		s.server.gate.mu.Lock()
		defer s.server.gate.mu.Unlock()
		all := s.server.gate.strangers
		return len(all) == mostStrangersFrom && !slices.ContainsFunc(all, func(one *stranger) bool { return mute(one.conn, time.Hour) })
	})
	conn := s.dial()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("one more is let in")
	}
	eventually(t, "they have stopped", func() bool {
		s.server.gate.mu.Lock()
		defer s.server.gate.mu.Unlock()
		return mute(s.server.gate.strangers[0].conn, time.Millisecond)
	})
	s.stall(time.Millisecond)
	s.well()
}

// halting is a connection that stops before it reads, once it has said something.
type halting struct {
	net.Conn
	said, wait chan struct{}
	once       sync.Once
}

func (h *halting) Read(p []byte) (int, error) {
	h.once.Do(func() { close(h.said) })
	<-h.wait
	return h.Conn.Read(p)
}

// echo sends both ways.
func echo(t *testing.T, l *wire.Conn, worker net.Conn) {
	t.Helper()
	text := make([]byte, 100)
	if err := l.Write(0, text); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(worker, text); err != nil {
		t.Fatal(err)
	}
	if _, err := worker.Write(text); err != nil {
		t.Fatal(err)
	}
	for got := 0; got < len(text); {
		f, err := l.Read()
		if err != nil {
			t.Fatal(err)
		}
		got += len(f.Content)
	}
}

// Clients that never read hold little of the server's memory, whatever their workers say, and keep nobody from being served.
func TestClientsThatNeverRead(t *testing.T) {
	s := newStage(t)
	_, granted, _ := s.share("ada")
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const many = 20
	before := heap()
	for range many {
		_, worker := s.link("ada", granted.Secret)
		_ = worker.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		sent := 0
		for piece := make([]byte, 1<<20); ; {
			n, err := worker.Write(piece)
			if sent += n; err != nil {
				break
			}
		}
		if sent > 64<<20 {
			t.Fatalf("a worker could say %d MiB to who does not read", sent>>20)
		}
	}
	// Both sides of each connection are in this process.
	if used := (heap() - min(before, heap())) / many; used > 2*(wire.MaxData+128<<10) {
		t.Errorf("each holds %d KiB", used>>10)
	}
	s.well()
}

// A server that ends waits for nobody who has said nothing yet.
func TestServerEndsWithoutStrangers(t *testing.T) {
	s := newStage(t)
	s.dial()
	if _, err := s.shake("ada").Read(make([]byte, 1)); err != nil { // a beat: its handshake is done on both sides
		t.Fatal(err)
	}
	eventually(t, "both are let in", func() bool {
		s.server.gate.mu.Lock()
		defer s.server.gate.mu.Unlock()
		return len(s.server.gate.strangers) == 2
	})
	if err := s.stop(); err != nil { // they have an hour
		t.Error(err)
	}
}
