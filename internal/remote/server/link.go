package server

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"

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
	s.carry(w, worker)
	return nil
}

// carry carries bytes both ways until one side has ended. What the worker said last is still carried.
func (s *Server) carry(w *wire.Conn, worker net.Conn) {
	back := make(chan struct{})
	go func() {
		defer close(back)
		if w.Carry(0, worker) == nil {
			w.Finish()
		} else {
			_ = w.Close()
		}
	}()
	if err := w.Pour(0, &greeting{to: worker}); err == nil {
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

// greeting changes what a program says first to its worker (lib/remote/link_hello.c), and passes on the rest as it is. The
// program may wish for memory that both share, which there is not between hosts, and its process number means nothing here.
type greeting struct {
	to   io.Writer
	head []byte
	over bool
}

// The hello: where its kind and its process are, and the kind that is a stream.
const (
	helloBytes   = 32
	helloKind    = 16
	helloProcess = 20
	helloStream  = 2
)

// Write implements io.Writer.
func (g *greeting) Write(p []byte) (int, error) {
	if g.over {
		return g.to.Write(p)
	}
	taken := min(helloBytes-len(g.head), len(p))
	if g.head = append(g.head, p[:taken]...); len(g.head) < helloBytes {
		return len(p), nil
	}
	binary.NativeEndian.PutUint32(g.head[helloKind:], helloStream)
	binary.NativeEndian.PutUint32(g.head[helloProcess:], 0)
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
