package command

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// pieceBytes is how much of a stream is read at once, and how much the other side may take before it says so.
const pieceBytes = 128 << 10

// errRoom is a side that sends more than it may.
var errRoom = errors.New("more bytes of a stream than there is room for")

// gate bounds what is under way of a stream.
type gate struct {
	mu     sync.Mutex
	cond   *sync.Cond
	left   int
	closed bool
}

func newGate() *gate {
	g := &gate{left: wire.Room}
	g.cond = sync.NewCond(&g.mu)
	return g
}

// take waits until so many bytes may be sent; false if nobody takes any more.
func (g *gate) take(n int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.left < n && !g.closed {
		g.cond.Wait()
	}
	g.left -= n
	return !g.closed
}

// give is told that bytes were taken. It returns false for more than were sent.
func (g *gate) give(n int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n < 0 || n > wire.Room-g.left {
		return false
	}
	g.left += n
	g.cond.Broadcast()
	return true
}

// close lets nothing more be sent.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.cond.Broadcast()
}

// source sends a stream from a file.
type source struct {
	conn   *wire.Conn
	stream uint8
	file   *os.File
	gate   *gate
	// wake has an end that becomes readable when nobody takes the stream any more.
	wake, waker *os.File
	once        sync.Once
	// over is closed when everything is sent.
	over chan struct{}
	// fault is why the file could not be read to its end.
	fault atomic.Pointer[error]
}

func newSource(conn *wire.Conn, stream uint8, file *os.File) (*source, error) {
	wake, waker, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &source{conn: conn, stream: stream, file: file, gate: newGate(), wake: wake, waker: waker, over: make(chan struct{})}, nil
}

// run sends until the file ends, nobody takes the stream, or the connection has ended. It closes the file: whoever writes
// to it hears that nobody reads.
func (s *source) run() {
	defer close(s.over)
	defer s.wake.Close()
	defer s.file.Close()
	piece := make([]byte, pieceBytes)
	for s.readable() {
		n, err := s.file.Read(piece)
		if n > 0 && (!s.gate.take(n) || s.conn.Write(s.stream, piece[:n]) != nil) {
			return
		}
		if err != nil { // of a terminal whose other side is closed, an error that means its end
			if !errors.Is(err, io.EOF) {
				s.fault.Store(&err)
			}
			_ = s.conn.End(s.stream) // whose end is noticed where it is read
			return
		}
	}
}

// readable waits until there is something to read; false if nobody takes it.
func (s *source) readable() bool {
	fds := []unix.PollFd{{Fd: int32(s.file.Fd()), Events: unix.POLLIN}, {Fd: int32(s.wake.Fd()), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err == nil && fds[1].Revents == 0
	}
}

// stop has the source send nothing more.
func (s *source) stop() {
	s.once.Do(func() {
		s.gate.close()
		s.waker.Close()
	})
}

// sink writes a stream to a file.
type sink struct {
	stream uint8
	file   *os.File
	// took tells who sends that bytes were taken, and broken that nobody takes the stream any more.
	took   func(wire.Took) error
	broken func(stream uint8) error

	mu     sync.Mutex
	cond   *sync.Cond
	queue  []byte
	closed bool
	// over is closed when everything is written, or fault says why not.
	over  chan struct{}
	fault error
}

func newSink(stream uint8, file *os.File, took func(wire.Took) error, broken func(uint8) error) *sink {
	s := &sink{stream: stream, file: file, took: took, broken: broken, over: make(chan struct{})}
	s.cond = sync.NewCond(&s.mu)
	return s
}

// put queues bytes, which it copies. It never waits.
func (s *sink) put(content []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil // what comes after an end goes nowhere
	}
	if len(s.queue)+len(content) > wire.Room {
		return errRoom
	}
	s.queue = append(s.queue, content...)
	s.cond.Signal()
	return nil
}

// end says that nothing more comes.
func (s *sink) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.cond.Signal()
}

// run writes until the stream has ended, and closes the file.
func (s *sink) run() {
	defer close(s.over)
	defer func() {
		if err := s.file.Close(); err != nil && s.fault == nil { // a network file system tells now what it could not write
			s.fault = err
		}
	}()
	var piece []byte
	for {
		s.mu.Lock()
		for len(s.queue) == 0 && !s.closed {
			s.cond.Wait()
		}
		piece, s.queue = s.queue, piece[:0]
		s.mu.Unlock()
		if len(piece) == 0 {
			return
		}
		if _, err := s.file.Write(piece); err != nil {
			s.fault = err
			s.end()
			_ = s.broken(s.stream) // an end of the connection is noticed where it is read
			return
		}
		// The connection may have ended, and what came is written all the same.
		_ = s.took(wire.Took{Stream: s.stream, Bytes: len(piece)})
	}
}
