package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// wayDelay is what a longer way adds in each direction.
const wayDelay = 100 * time.Microsecond

// way passes connections on to a host, each byte later than it came. It sleeps in threads of its own, because Go's own timers are
// not as fine as this.
type way struct {
	listener net.Listener
	to       string
	delay    time.Duration
	// gone is whether nothing is passed on any more, while all connections stay.
	gone atomic.Bool

	mu    sync.Mutex // guards conns
	conns []*os.File
	all   sync.WaitGroup
}

// lengthen opens a longer way to the host.
func (h *host) lengthen() (*way, error) {
	port := strconv.Itoa(h.port)
	listener, err := net.Listen("tcp", net.JoinHostPort(far, port))
	if err != nil {
		return nil, fmt.Errorf("open a longer way: %w", err)
	}
	w := &way{listener: listener, to: net.JoinHostPort(near, port), delay: wayDelay}
	w.all.Go(w.accept)
	return w, nil
}

func (w *way) accept() {
	for {
		conn, err := w.listener.Accept()
		if err != nil {
			return // closed
		}
		onward, err := net.Dial("tcp", w.to)
		if err != nil {
			_ = conn.Close()
			continue
		}
		here, errHere := w.raw(conn)
		there, errThere := w.raw(onward)
		if errors.Join(errHere, errThere) != nil {
			continue // both are closed with the way
		}
		w.pass(here, there)
		w.pass(there, here)
	}
}

// raw is a connection whose reads and writes block the thread.
func (w *way) raw(conn net.Conn) (*os.File, error) {
	defer conn.Close()
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.New("it is no TCP connection")
	}
	f, err := tcp.File()
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.conns = append(w.conns, f)
	w.mu.Unlock()
	return f, unix.SetNonblock(int(f.Fd()), false)
}

// chunk is what is to be passed on, and when.
type chunk struct {
	due  int64
	data []byte
}

// pass passes on what comes in one direction.
func (w *way) pass(from, to *os.File) {
	const most, size = 256, 64 << 10
	chunks, free := make(chan chunk, most), make(chan []byte, most)
	w.all.Go(func() {
		runtime.LockOSThread() // and unlock it: with a thread that ends, programs end that it started
		defer runtime.UnlockOSThread()
		defer close(chunks)
		for {
			var buffer []byte
			select {
			case buffer = <-free:
			default:
				buffer = make([]byte, size)
			}
			n, err := unix.Read(int(from.Fd()), buffer[:size])
			if errors.Is(err, unix.EINTR) {
				continue
			} else if err != nil || n <= 0 {
				return
			}
			chunks <- chunk{monotonic() + int64(w.delay), buffer[:n]}
		}
	})
	w.all.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // it is coarser without
		defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }()
		for c := range chunks {
			until := unix.NsecToTimespec(c.due)
			for errors.Is(unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &until, nil), unix.EINTR) {
			}
			for data := c.data; len(data) > 0 && !w.gone.Load(); {
				n, err := unix.Write(int(to.Fd()), data)
				if err != nil && !errors.Is(err, unix.EINTR) {
					break // the other side is gone; the rest is read and forgotten
				}
				data = data[max(n, 0):]
			}
			select {
			case free <- c.data[:size]:
			default:
			}
		}
		if !w.gone.Load() {
			_ = unix.Shutdown(int(to.Fd()), unix.SHUT_WR)
		}
	})
}

func monotonic() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // it does not fail for this clock
	return now.Nano()
}

// vanish has nothing pass any more. Neither side is told.
func (w *way) vanish() { w.gone.Store(true) }

// close ends the way and all that is on it.
func (w *way) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	for _, f := range w.conns {
		_ = unix.Shutdown(int(f.Fd()), unix.SHUT_RDWR)
	}
	w.mu.Unlock()
	w.all.Wait()
	for _, f := range w.conns {
		_ = f.Close()
	}
}
