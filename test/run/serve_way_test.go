package run

import (
	"io"
	"net"
	"sync"
	"testing"
)

// way passes connections on to a server, and calls at when a byte of a number has come in one direction, before it is passed on.
type way struct {
	name string // of the server by this way, as HOST:PORT
	at   func(*way)

	listener net.Listener
	to       string
	all      sync.WaitGroup

	mu    sync.Mutex // guards the rest
	conns []net.Conn
	// left is how many bytes are passed until at is called, negative after that.
	left int
}

// newWay opens a way to a server. Answers count the bytes of the server, otherwise those of the client count.
func newWay(t *testing.T, s *server, bytes int, answers bool, at func(*way)) *way {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{name: listener.Addr().String(), at: at, listener: listener, to: s.name, left: bytes}
	t.Cleanup(w.close)
	w.all.Go(func() {
		for {
			here, err := listener.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", w.to)
			if err != nil {
				_ = here.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, here, there)
			w.mu.Unlock()
			w.all.Go(func() { w.pass(here, there, !answers) })
			w.all.Go(func() { w.pass(there, here, answers) })
		}
	})
	return w
}

// pass passes on one direction. Its end is the end of both, as where a machine is between the two.
func (w *way) pass(from, to net.Conn, counts bool) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		if counts && w.reached(n) {
			w.at(w)
		}
		if _, wrong := to.Write(buffer[:n]); wrong != nil || err != nil {
			_, _ = io.Copy(io.Discard, from) // until the other direction closes it
			return
		}
	}
}

// reached counts bytes, and is true once.
func (w *way) reached(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.left
	w.left -= n
	return before >= 0 && w.left < 0
}

// cut closes all connections.
func (w *way) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.conns {
		_ = conn.Close()
	}
}

// close ends the way.
func (w *way) close() {
	_ = w.listener.Close()
	w.cut()
	w.all.Wait()
}
