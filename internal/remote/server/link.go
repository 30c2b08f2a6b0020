package server

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// mostLinks is how many processes may use a share at once, as many as its listener has workers for.
const mostLinks = 256

// share is a share that somebody holds.
type share struct {
	Share
	client, secret string

	over  chan struct{} // closed when it takes no more links, and those that are there end
	links sync.WaitGroup
	count int // guarded by shares.mu
}

// shares are all that are held, by client.
type shares struct {
	mu  sync.Mutex
	all map[string][]*share
}

func (all *shares) add(client string, taken Share) *share {
	s := &share{Share: taken, client: client, secret: rand.Text(), over: make(chan struct{})} // 128 bits and more
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.all == nil {
		all.all = map[string][]*share{}
	}
	all.all[client] = append(all.all[client], s)
	return s
}

// remove takes a share away, and ends its links.
func (all *shares) remove(s *share) {
	all.mu.Lock()
	defer all.mu.Unlock()
	kept := all.all[s.client][:0]
	for _, other := range all.all[s.client] {
		if other != s {
			kept = append(kept, other)
		}
	}
	if all.all[s.client] = kept; len(kept) == 0 {
		delete(all.all, s.client)
	}
	close(s.over)
}

// join counts a link of the share with this secret, if it is the client's. The share's links are done when done was called
// for each.
func (all *shares) join(client, secret string) (s *share, done func(), err error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, one := range all.all[client] {
		if subtle.ConstantTimeCompare([]byte(one.secret), []byte(secret)) == 1 {
			s = one
		}
	}
	switch {
	case s == nil:
		return nil, nil, &wire.Refused{Code: wire.CodeShare, Text: "there is no such share of client " + client + ": it has ended"}
	case s.count >= mostLinks:
		return nil, nil, &wire.Refused{Code: wire.CodeShare, Text: fmt.Sprintf("%d processes use share %s, and no more can", mostLinks, s.Granted().Name)}
	}
	s.count++
	s.links.Add(1)
	return s, func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		s.count--
		s.links.Done()
	}, nil
}

// link carries the bytes between a process and its worker. The error is a refusal.
func (s *Server) link(ctx context.Context, who Client, secret string, w *wire.Conn) error {
	held, done, err := s.shares.join(who.Name, secret)
	if err != nil {
		return err
	}
	defer done()
	dialling, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-held.over:
		case <-w.Done():
		case <-ctx.Done():
		case <-dialling.Done():
			return
		}
		stop()
	}()
	worker, err := held.Dial(dialling)
	if err != nil {
		return fmt.Errorf("start a worker for share %s: %w", held.Granted().Name, err)
	}
	defer worker.Close()
	if err := w.Send(wire.Answer{Linked: &wire.Linked{}}); err != nil {
		return nil //nolint:nilerr // nobody is left who could be told
	}
	context.AfterFunc(dialling, func() {
		_ = w.Close()
		_ = worker.Close()
	})
	s.carry(ctx, held, w, worker)
	return nil
}

// carry carries bytes both ways until one side has ended. What the worker said last is still carried.
func (s *Server) carry(ctx context.Context, held *share, w *wire.Conn, worker net.Conn) {
	back, from := make(chan struct{}), &fromWorker{Conn: worker, ctx: ctx, share: held}
	go func() {
		defer close(back)
		if w.Carry(0, from) == nil {
			w.Finish()
		} else {
			_ = w.Close()
		}
	}()
	if err := w.Pour(0, &greeting{to: worker}); err == nil {
		from.left.Store(true)
		if half, ok := worker.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // of one that has ended
		}
		w.Drain()
	} else if w.Err() == nil { // the worker takes nothing more, and may have said why
		w.Drain()
	}
	_ = worker.Close()
	<-back
}

// fromWorker is what a worker says. Its end is passed on alone where its share goes on, so that the client knows at once that there
// is no other reason. Where the share is about to end, so does the link, and the client is told why.
type fromWorker struct {
	net.Conn
	ctx   context.Context
	share *share
	// left is true when the process has ended, which asks for no reason.
	left atomic.Bool
}

const (
	// askTime is how long the host may take to find out whether a share is about to end whose worker has.
	askTime = 50 * time.Millisecond
	// endingTime is how long a share that is about to end may take.
	endingTime = 5 * time.Second
)

// errShare is the end of a worker whose share ends.
var errShare = errors.New("the share ends")

// Read implements [io.Reader].
func (f *fromWorker) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	if err == nil {
		return n, nil
	}
	if errors.Is(err, syscall.ECONNRESET) { // it was killed before it had read all
		err = io.EOF
	}
	if errors.Is(err, io.EOF) && !f.left.Load() && f.ending() {
		select {
		case <-f.share.over:
			err = errShare
		case <-time.After(endingTime):
		}
	}
	return n, err
}

func (f *fromWorker) ending() bool {
	select {
	case <-f.share.over:
		return true
	default:
	}
	ctx, cancel := context.WithTimeout(f.ctx, askTime)
	defer cancel()
	return f.share.Ending(ctx)
}

// greeting changes what a program says first to its worker, as [wire.ToStream] does, and passes on the rest as it is.
type greeting struct {
	to   io.Writer
	head []byte
	over bool
}

// Write implements io.Writer.
func (g *greeting) Write(p []byte) (int, error) {
	if g.over {
		return g.to.Write(p)
	}
	taken := min(wire.HelloBytes-len(g.head), len(p))
	if g.head = append(g.head, p[:taken]...); len(g.head) < wire.HelloBytes {
		return len(p), nil
	}
	wire.ToStream(g.head)
	g.over = true
	if _, err := g.to.Write(g.head); err != nil {
		return 0, err
	}
	if taken == len(p) {
		return len(p), nil
	}
	_, err := g.to.Write(p[taken:])
	return len(p), err
}
