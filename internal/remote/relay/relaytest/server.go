// Package relaytest has a server for tests of the client's side: it says what a test wants, and passes links to wherever the
// test has a worker.
package relaytest

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/identity/identitytest"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// Server is a server of a test.
type Server struct {
	// Address is where it listens, as HOST:PORT.
	Address string
	// Inventory is what it says that it has; nil has it say nothing.
	Inventory func() *wire.Inventory
	// Take answers a request: with a share or a refusal.
	Take func(wire.Take) wire.Answer
	// Link connects a link with what stands for a worker.
	Link func() (net.Conn, error)

	listener net.Listener
	mu       sync.Mutex
	shares   []*wire.Conn
	links    []*wire.Conn
	all      []net.Conn
	takes    []wire.Take
}

// Authority makes certificates for servers of this machine and for their client.
type Authority struct {
	*identitytest.Authority
	// Bundles is where the client's are.
	Bundles string
}

// NewAuthority makes an authority, whose bundles the test finds from then on.
func NewAuthority(t *testing.T) *Authority {
	t.Helper()
	a := &Authority{identitytest.NewAuthority(t, "127.0.0.1", "localhost"), t.TempDir()}
	t.Setenv(identity.Variable, a.Bundles)
	return a
}

// Admit makes a bundle for a server at a port, and returns it as the file has it. It may be out of its time already.
func (a *Authority) Admit(t *testing.T, file string, port int, validity time.Duration) *identity.Bundle {
	t.Helper()
	bundle, err := a.Issue("laptop", validity)
	if err != nil {
		t.Fatal(err)
	}
	bundle.Port = port
	identitytest.Write(t, bundle, file)
	if bundle, err = identity.ReadBundle(file); err != nil {
		t.Fatal(err)
	}
	return bundle
}

// Start starts a server, which ends with the test.
func (a *Authority) Start(t *testing.T, s *Server) *Server {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", a.Server)
	if err != nil {
		t.Fatal(err)
	}
	s.listener, s.Address = listener, listener.Addr().String()
	a.Admit(t, filepath.Join(a.Bundles, strconv.Itoa(s.Port())+".pem"), s.Port(), time.Hour)
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.all = append(s.all, conn)
			s.mu.Unlock()
			served.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		s.Die()
		served.Wait()
	})
	return s
}

// Port is the server's.
func (s *Server) Port() int {
	_, port, _ := net.SplitHostPort(s.Address)
	n, _ := strconv.Atoi(port)
	return n
}

// Die ends all connections at once, as the end of the server's process does, and accepts none.
func (s *Server) Die() {
	_ = s.listener.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.all {
		if one, ok := conn.(*tls.Conn); ok {
			_ = one.NetConn().Close()
		}
	}
}

// End ends all shares with a reason, as `divvy stop` at the server does.
func (s *Server) End(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.shares {
		_ = c.Send(wire.Answer{Ended: &wire.Ended{Text: why}})
	}
}

// EndLinks ends all links alone, as the end of their workers does.
func (s *Server) EndLinks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.links {
		_ = c.End(0)
		c.Finish()
	}
}

// Met is how many connections there were.
func (s *Server) Met() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// Taken are the requests so far, and Held how many shares are held now.
func (s *Server) Taken() (takes []wire.Take, held int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.shares {
		if c.Err() == nil {
			held++
		}
	}
	return append(takes, s.takes...), held
}

func (s *Server) serve(conn net.Conn) {
	one, ok := conn.(*tls.Conn)
	if !ok || one.Handshake() != nil {
		_ = conn.Close()
		return
	}
	c := wire.New(one)
	defer func() { _ = c.Close() }()
	var open wire.Open
	if c.Receive(&open) != nil {
		return
	}
	switch open.Purpose {
	case wire.PurposeInventory:
		if inventory := s.Inventory(); inventory != nil {
			_ = c.Send(wire.Answer{Inventory: inventory})
			return
		}
		<-c.Done()
	case wire.PurposeShare:
		s.share(c, *open.Take)
	case wire.PurposeLink:
		s.link(c)
	}
}

func (s *Server) share(c *wire.Conn, take wire.Take) {
	answer := s.Take(take)
	s.mu.Lock()
	s.takes = append(s.takes, take)
	if answer.Granted != nil {
		s.shares = append(s.shares, c)
	}
	s.mu.Unlock()
	if c.Send(answer) != nil || answer.Granted == nil {
		return
	}
	_, _ = c.Read()
}

// link passes a link's bytes, with its hello changed as servers do it.
func (s *Server) link(c *wire.Conn) {
	worker, err := s.Link()
	if err != nil {
		_ = c.Send(wire.Answer{Refused: &wire.Refused{Code: wire.CodeHost, Text: err.Error()}})
		return
	}
	defer worker.Close()
	s.mu.Lock()
	s.links = append(s.links, c)
	s.mu.Unlock()
	if c.Send(wire.Answer{Linked: &wire.Linked{}}) != nil {
		return
	}
	go func() {
		defer func() { _ = c.Close() }()
		buffer := make([]byte, wire.MaxData)
		for {
			n, err := worker.Read(buffer)
			if n > 0 && c.Write(0, buffer[:n]) != nil || err != nil {
				return
			}
		}
	}()
	for first := true; ; first = false {
		f, err := c.Read()
		if err != nil || f.Kind != wire.KindData {
			return
		}
		if first && len(f.Content) >= wire.HelloBytes {
			wire.ToStream(f.Content)
		}
		if _, err := worker.Write(f.Content); err != nil {
			return
		}
	}
}
