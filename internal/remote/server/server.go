// Package server answers the clients of `divvy serve`: it lets them in by their certificates, takes shares for them, and
// connects their processes with the workers of these shares. What there is to give it learns from a [Host].
package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// Host has the GPUs. Its methods are called by several goroutines at once. An error that is a [wire.Refused] is told to the
// client as it is; of any other one the client learns the text.
type Host interface {
	// Inventory is what the client could have.
	Inventory(ctx context.Context, who Client) (*wire.Inventory, error)
	// Take makes a share. Told is called while it waits. The context ends with the client's wish.
	Take(ctx context.Context, who Client, take wire.Take, told func(wire.Queued)) (Share, error)
	// Command runs a command in a share of its own, with what the connection brings and takes, until one of them ends. Of a
	// [wire.Refused] the client has to be told yet.
	Command(ctx context.Context, who Client, take wire.Take, c wire.Command, w *wire.Conn) error
}

// Client is who asks: the name in the certificate, and from where.
type Client struct {
	Name    string
	Address string
	// Issued is when the certificate was made. Who is admitted may have changed since the handshake.
	Issued time.Time
}

// Share is a share that was taken.
type Share interface {
	// Granted is what it has. The server adds the secret.
	Granted() wire.Granted
	// Dial starts a worker and connects with it.
	Dial(ctx context.Context) (net.Conn, error)
	// Ended tells once why the share ended, if it ended by itself, and Ending reports whether it is about to. The context bounds
	// how long that may take to find out.
	Ended() <-chan wire.Ended
	Ending(ctx context.Context) bool
	// End ends the share and returns when it has ended.
	End()
}

// Server is a server of one host.
type Server struct {
	Host Host
	// TLS demands certificates of clients and names the protocol.
	TLS *tls.Config
	// Name is the client's name in a certificate that was verified, or why this client is not served.
	Name func(tls.ConnectionState) (string, error)
	Log  *slog.Logger

	// hello is how long a client may take to say who it is and what it wants; 0 is [helloTime].
	hello  time.Duration
	gate   gate
	shares shares
	lines  Lines
}

// Bounds of time.
const (
	// helloTime is how long a client may take for its handshake and its first message together.
	helloTime = 10 * time.Second
	// againPause is between two tries to accept where there are too few descriptors.
	againPause = 100 * time.Millisecond
)

// Serve answers at a listener until the context is done, and then ends all shares with a reason.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var sessions sync.WaitGroup
	defer sessions.Wait()
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept connections: %w", err)
		case err != nil:
			s.lines.Warn(ctx, s.Log, strangers, "cannot accept a connection", "error", err)
			select {
			case <-time.After(againPause):
			case <-ctx.Done():
			}
			continue
		}
		leave, full := s.gate.enter(conn)
		if full != "" {
			_ = conn.Close()
			s.lines.Warn(ctx, s.Log, strangers, "turned away", "address", conn.RemoteAddr(), "why", full)
			continue
		}
		sessions.Go(func() { s.meet(ctx, conn, leave) })
	}
}

// meet finds out who has connected, and serves them. leave is called when they are known.
func (s *Server) meet(ctx context.Context, conn net.Conn, leave func()) {
	defer conn.Close()
	secured := tls.Server(conn, s.TLS)
	stranger := sync.OnceFunc(leave) // who is refused counts as one until they have heard it
	defer stranger()
	who, open, w, err := s.greet(ctx, secured)
	if err != nil {
		s.lines.Warn(ctx, s.Log, strangers, "no client", "address", conn.RemoteAddr(), "why", short(err.Error()))
		if w != nil {
			s.refuse(w, err)
		}
		return
	}
	defer func() { _ = w.Close() }() // which may have ended
	out, full := s.gate.admit(who.Name)
	if full != "" {
		s.lines.Warn(ctx, s.Log, who.Name, "turned away", "address", who.Address, "why", full)
		s.refuse(w, &wire.Refused{Code: wire.CodeHost, Text: full})
		return
	}
	defer out()
	stranger()
	s.dispatch(ctx, who, open, w)
}

// greet shakes hands and reads the first message. Where it has a connection and an error, the client can be told.
func (s *Server) greet(ctx context.Context, secured *tls.Conn) (who Client, open wire.Open, w *wire.Conn, err error) {
	stop := context.AfterFunc(ctx, func() { _ = secured.NetConn().Close() })
	defer stop()
	_ = secured.SetDeadline(time.Now().Add(cmp.Or(s.hello, helloTime))) // of one that is closed the handshake tells
	if err = secured.HandshakeContext(ctx); err != nil {
		return who, open, nil, fmt.Errorf("shake hands: %w", identity.ExplainClient(err))
	}
	state := secured.ConnectionState()
	if state.NegotiatedProtocol != wire.Protocol {
		return who, open, nil, fmt.Errorf("shake hands: it speaks protocol %q, and this server %q", state.NegotiatedProtocol, wire.Protocol)
	}
	who.Name, err = s.Name(state)
	who.Address, who.Issued = hostOf(secured.RemoteAddr()), identity.Issued(state)
	w = wire.New(secured)
	if err != nil {
		return who, open, w, err
	}
	if err = w.Receive(&open); err != nil {
		return who, open, w, &wire.Refused{Code: wire.CodeMessage, Text: fmt.Sprintf("client %s says what this server does not understand: %s: install the same version of Divvy on both", who.Name, short(err.Error()))}
	}
	return who, open, w, secured.SetDeadline(time.Time{})
}

// refuse tells why and ends the connection.
func (s *Server) refuse(w *wire.Conn, why error) {
	refused := new(wire.Refused)
	if !errors.As(why, &refused) {
		refused = &wire.Refused{Code: wire.CodeHost, Text: why.Error()}
	}
	s.last(w, wire.Answer{Refused: refused})
}

// last sends the last message of a connection and waits until the client has it.
func (s *Server) last(w *wire.Conn, answer wire.Answer) {
	w.Last(answer)
	w.Drain()
	_ = w.Close()
}
