package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Handler answers one request. Its context ends when the answer is no longer
// wanted.
type Handler func(ctx context.Context, peer *Peer, params json.RawMessage) (any, error)

// Handle makes a Handler of a typed function; parameters are decoded strictly.
func Handle[P, R any](f func(context.Context, *Peer, P) (R, error)) Handler {
	return func(ctx context.Context, peer *Peer, params json.RawMessage) (any, error) {
		var p P
		if len(params) > 0 {
			if err := decodeStrict(params, &p); err != nil {
				return nil, &Error{Code: CodeInvalid, Message: err.Error()}
			}
		}
		return f(ctx, peer, p)
	}
}

// Server answers requests by its table of handlers.
type Server struct {
	Handlers map[Method]Handler
	Log      *slog.Logger
	// Connections is told the number of open connections whenever it changes.
	Connections func(n int)
	// Most is how many connections one user may have, 0 for the usual number. An agent has
	// a server for each of several sockets, and files for all of them.
	Most int

	limits *limits // nil are the usual ones
}

// acceptPause is between two tries to accept while descriptors or memory are short.
const acceptPause = 100 * time.Millisecond

// writeTime is how long a peer may take to read each part of an answer. Who reads
// nothing is disconnected, and holds nothing any more.
var writeTime = 10 * time.Second

// partOfAnswer is how much is written at once.
const partOfAnswer = 64 << 10

// Serve accepts connections until the listener is closed, then ends the open
// ones and returns when their handlers have.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	if s.limits == nil {
		s.limits = new(usual())
	}
	if s.Most > 0 {
		s.limits.connections = min(s.limits.connections, s.Most)
	}
	bounds := newBounds(*s.limits, s.Connections)
	defer wg.Wait()
	defer cancel()
	short := false
	for {
		conn, err := l.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case passing(err):
			// Whoever waits to be let in is not lost, nor are those who are in.
			if !short {
				s.Log.WarnContext(ctx, "cannot take up connections, and will try again", "error", err)
			}
			short = true
			<-time.After(acceptPause)
			continue
		case err != nil:
			return fmt.Errorf("accept: %w", err)
		}
		short = false
		peer, err := PeerCredentials(conn)
		if err != nil {
			_ = conn.Close()
			continue
		}
		who := identify(conn, peer) // now: later another process may have the number
		if err := bounds.enter(who.Maker); err != nil {
			turnAway(conn, err)
			continue
		}
		wg.Go(func() {
			defer bounds.leave(who.Maker)
			if err := s.serve(ctx, conn, who, bounds); err != nil {
				// A peer causes these as often as it likes, and was told.
				s.Log.DebugContext(ctx, "connection ended", "uid", peer.Uid, "error", err)
			}
		})
	}
}

// turnAway tells a peer why it is not let in. The few bytes fit into an empty socket, so
// nobody is waited for.
func turnAway(conn net.Conn, why error) {
	if line, err := encodeLine(response{Error: &Error{Code: CodeOf(why), Message: why.Error()}}); err == nil {
		_ = conn.SetWriteDeadline(time.Now().Add(acceptPause))
		_, _ = conn.Write(line)
	}
	_ = conn.Close()
}

// passing reports whether an error of accept(2) says nothing of the listener.
func passing(err error) bool {
	for _, one := range []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// session is one connection.
type session struct {
	server *Server
	peer   *Peer
	conn   net.Conn
	bounds *bounds
	ended  <-chan struct{} // closed when the connection is given up

	write sync.Mutex // orders answers on the socket

	mu      sync.Mutex // guards cancels
	cancels map[uint64]context.CancelFunc
}

func (s *Server) serve(ctx context.Context, conn *net.UnixConn, peer Peer, bounds *bounds) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	c := &session{server: s, conn: conn, bounds: bounds, ended: ctx.Done(), cancels: map[uint64]context.CancelFunc{}}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer func() { _ = conn.Close() }()
	defer cancel()
	defer stop()
	peer.done, peer.left = ctx.Done(), func() bool { return hungUp(conn) }
	c.peer = &peer
	in := newLines(conn, maxLine)
	in.hold = func(size int) error { return bounds.hold(c.peer.Maker, size) }
	defer in.drop()
	for {
		var req request
		size, err := in.next(&req, decodeStrict)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, unix.ECONNRESET):
			return nil
		case err != nil:
			// What follows on this connection cannot be trusted to be a message.
			refusal := &Error{Code: CodeInvalid, Message: err.Error()}
			_ = errors.As(err, &refusal)
			return errors.Join(err, c.answer(response{Error: refusal}))
		}
		if req.Method == methodCancel {
			c.cancel(req.ID)
			continue
		}
		if err := bounds.begin(c.peer.Maker, size); err != nil {
			// While it does not read that, nothing more is read from it either.
			if err := c.answer(response{ID: req.ID, Error: &Error{Code: CodeOf(err), Message: err.Error()}}); err != nil {
				return err
			}
			continue
		}
		ctx, forget := c.takenBack(ctx, req.ID) // before another line is read, which may take it back
		wg.Go(func() {
			defer bounds.end(c.peer.Maker, size)
			defer forget()
			c.handle(ctx, req)
		})
	}
}

func (c *session) cancel(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.cancels[id]; cancel != nil {
		cancel()
	}
}

// takenBack returns a context that ends when the peer takes the request back.
func (c *session) takenBack(ctx context.Context, id uint64) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancels[id] = cancel
	return ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.cancels, id)
		cancel()
	}
}

func (c *session) handle(ctx context.Context, req request) {
	turn := c.bounds.turnOf(c.peer.Maker)
	if turn.take(ctx); !turn.taken {
		return // taken back, or nobody is there any more
	}
	line, hand, served, err := c.respond(context.WithValue(c.telling(ctx, req.ID), turnKey{}, turn), req)
	if hand != nil {
		defer hand.Close()
	}
	turn.give() // before the answer is written, which the peer may not read
	if !served && c.over() {
		return // the handler was interrupted; the peer asks the next agent
	}
	size := len(line)
	if tooMuch := c.bounds.hold(c.peer.Maker, size); err == nil && tooMuch != nil {
		size, hand = 0, nil
		line, err = encodeLine(response{ID: req.ID, Error: &Error{Code: CodeOf(tooMuch), Message: tooMuch.Error()}})
	}
	defer func() { _ = c.bounds.hold(c.peer.Maker, -size) }()
	if err == nil {
		err = c.send(line, hand)
	}
	if err != nil {
		c.conn.Close()
	}
}

// over reports whether the connection is given up, as when the agent ends. An error that
// comes afterwards says nothing of the request.
func (c *session) over() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// teller is the key under which a handler's context has the way to tell its asker.
type teller struct{}

// Tell tells the asker of a request how it is with it, before the answer. Where nobody
// can be told it does nothing.
func Tell(ctx context.Context, progress any) {
	if tell, ok := ctx.Value(teller{}).(func(any)); ok {
		tell(progress)
	}
}

// Telling is a context with which a handler can tell its asker.
func Telling(ctx context.Context, tell func(progress any)) context.Context {
	return context.WithValue(ctx, teller{}, tell)
}

func (c *session) telling(ctx context.Context, id uint64) context.Context {
	return Telling(ctx, func(progress any) {
		data, err := json.Marshal(progress)
		if err == nil {
			err = c.answer(response{ID: id, Progress: data})
		}
		if err != nil {
			c.conn.Close()
		}
	})
}

// respond is the line that answers a request, with a descriptor or nil; served is whether it tells no error. The result is encoded once, in its place: a long
// listing takes milliseconds.
func (c *session) respond(ctx context.Context, req request) (line []byte, hand *os.File, served bool, err error) {
	failure := Errorf(CodeInvalid, "unknown method %q: the agent is older than this program: start it again", req.Method)
	if handler, ok := c.server.Handlers[req.Method]; ok {
		result, err := handler(ctx, c.peer, req.Params)
		if err == nil {
			hand = handOf(result)
			line, err = encodeLine(outcome{ID: req.ID, Result: result})
		}
		if err == nil {
			return line, hand, true, nil
		}
		failure = &Error{Code: CodeOf(err), Message: err.Error()}
	}
	line, err = encodeLine(response{ID: req.ID, Error: failure})
	return line, hand, false, err
}

func (c *session) answer(resp response) error {
	line, err := encodeLine(resp)
	if err != nil {
		return err
	}
	return c.send(line, nil)
}

// send writes a line, as fast as the peer reads it. A descriptor goes with it unless that is nil.
func (c *session) send(line []byte, hand *os.File) error {
	c.write.Lock()
	defer c.write.Unlock()
	for len(line) > 0 {
		part := line[:min(len(line), partOfAnswer)]
		if err := c.conn.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
			return err
		}
		written, err := writeWith(c.conn, part, hand)
		if err != nil {
			return err
		}
		line, hand = line[written:], nil
	}
	return nil
}
