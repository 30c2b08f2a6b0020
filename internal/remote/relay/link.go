package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/plaintext"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// link is the connection of one process with its worker.
type link struct {
	relay *Relay
	unix  *net.UnixConn
	// process is the number that the process says of itself, as its own namespace has it.
	process int

	// gone is true once the process has ended, and over is closed when its worker has too.
	gone atomic.Bool
	over chan struct{}

	// answer is the beginning of what the worker says, and worker the number that it says of itself there, 0 until then.
	answer []byte
	worker uint32

	ending sync.Mutex // guards what follows
	ended  bool
	remote *wire.Conn // nil while there is none
}

// helloTime is how long a process may take to say its hello.
const helloTime = 10 * time.Second

// whyTime is how long a link whose connection broke waits to hear that its share has ended, and why.
const whyTime = 50 * time.Millisecond

// serve connects a process with a worker, and returns when either has ended.
func (r *Relay) serve(ctx context.Context, conn *net.UnixConn) {
	l := &link{relay: r, unix: conn, over: make(chan struct{})}
	defer close(l.over)
	defer func() { _ = conn.Close() }() // which may have ended
	pid, err := peerOf(conn, r.spec.Everybody)
	if err != nil {
		return // a stranger
	}
	hello := make([]byte, wire.HelloBytes)
	_ = conn.SetReadDeadline(time.Now().Add(helloTime)) // a connection that has ended tells it when it is read
	if _, err := io.ReadFull(conn, hello); err != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	l.process = int(wire.ProcessOf(hello))
	_ = os.Remove(l.reasonFile()) // of another process with that number
	r.awaitEnds(ctx)
	share, err := r.shareFor(ctx, l, pid)
	if err != nil {
		l.end(plain(err))
		return
	}
	defer r.leave(l)
	defer l.forgetWorker()
	if err := l.connectAgain(ctx, share, l.connect); err != nil {
		l.end(l.unconnected(ctx, share, err))
		return
	}
	if err := l.remote.Write(0, hello); err == nil {
		l.pass(share)
	}
}

// awaitEnds waits for the workers of processes that have ended, see [link.pass].
func (r *Relay) awaitEnds(ctx context.Context) {
	r.mu.Lock()
	var ending []*link
	for l := range r.links {
		if l.hasLeft() {
			ending = append(ending, l)
		}
	}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	for _, l := range ending {
		select {
		case <-l.over:
		case <-ctx.Done():
			return
		}
	}
}

// noWay reports whether an error says that the network has no way to a host now: a cable is out, a router starts anew, or a host of
// the same network does not answer for its address.
func noWay(err error) bool {
	return errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.ENETDOWN)
}

// connectAgain connects to a worker, and tries again while there is no way: a pause of the network is waited out by who begins in
// it, too, for as long as a connection may take.
func (l *link) connectAgain(ctx context.Context, s *Share, connect func(context.Context, *Share) error) error {
	most := time.After(dialTime)
	for {
		err := connect(ctx, s)
		if err == nil || !noWay(err) {
			return err
		}
		select {
		case <-s.Ended():
			return err
		case <-most:
			return err
		case <-ctx.Done():
			return err
		case <-time.After(wire.Beat):
		}
	}
}

// connect makes the connection to a worker.
func (l *link) connect(ctx context.Context, s *Share) error {
	remote, err := s.Host.open(ctx, wire.Open{Purpose: wire.PurposeLink, Share: s.Granted.Secret})
	if err != nil {
		return err
	}
	a, err := s.Host.answer(ctx, remote)
	if err == nil && a.Linked == nil {
		err = wire.ErrFrame
	}
	if err != nil {
		return errors.Join(err, remote.Close())
	}
	l.ending.Lock()
	defer l.ending.Unlock()
	if l.ended {
		return errors.Join(errOver, remote.Close())
	}
	l.remote = remote
	return nil
}

// leaveTime bounds how long the end of a process waits for that of its worker.
const leaveTime = 5 * time.Second

// pass carries bytes both ways until one side has ended. Of a process that has, the end of its worker is waited for, so that the
// next one finds what it had of the GPU.
func (l *link) pass(s *Share) {
	var up sync.WaitGroup
	up.Go(func() {
		if err := l.remote.Carry(0, fromProcess{l}); l.isOver() {
			return // there is nobody who would wait for a reason
		} else if l.remote.Err() != nil {
			l.end(l.reason(s, err))
		} else if err != nil && l.remote.End(0) != nil {
			l.end("") // nothing is left to wait for
		}
	})
	err := l.remote.Pour(0, toProcess{l})
	if err != nil && l.remote.Err() == nil && l.hasLeft() {
		l.leaves()
		l.remote.Drain()
	}
	switch {
	case l.gone.Load():
	case err == nil:
		l.end(l.workerEnded(s))
	case l.remote.Err() != nil:
		l.end(l.reason(s, l.remote.Err()))
	}
	l.end("")
	up.Wait()
}

// fromProcess is what a process says. Its end is noted before anybody else hears of it.
type fromProcess struct{ *link }

// Read implements [io.Reader].
func (f fromProcess) Read(p []byte) (int, error) {
	n, err := f.unix.Read(p)
	if err != nil {
		f.leaves()
	}
	return n, err //nolint:wrapcheck // the reader's own
}

// toProcess is what a process hears. What the worker says first is looked at before.
type toProcess struct{ *link }

// Write implements [io.Writer].
func (t toProcess) Write(p []byte) (int, error) {
	if missing := wire.HelloBytes - len(t.answer); missing > 0 {
		t.answer = append(t.answer, p[:min(missing, len(p))]...)
		if len(t.answer) == wire.HelloBytes {
			t.noteWorker(wire.ProcessOf(t.answer))
		}
	}
	return t.unix.Write(p) //nolint:wrapcheck // the writer's own
}

// leaves notes that the process has ended, and how long its worker has to end too.
func (l *link) leaves() {
	if l.gone.Swap(true) {
		return
	}
	time.AfterFunc(leaveTime, func() { _ = l.remote.Close() })
}

// hasLeft reports whether the process has ended, also where nobody has read so yet.
func (l *link) hasLeft() bool {
	if l.gone.Load() {
		return true
	}
	raw, err := l.unix.SyscallConn()
	if err != nil {
		return true
	}
	left := false
	asked := raw.Control(func(fd uintptr) {
		one := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(one, 0)
		left = err == nil && n > 0
	})
	return left || asked != nil
}

// reason is why a link ended whose connection did: because its share has, or for itself. A host that neither of them hears is gone.
// Then the share ends first: who hears of the program's end is to find out why.
func (l *link) reason(s *Share, err error) string {
	if errors.Is(err, wire.ErrSilent) && s.conn.Quiet() > wire.Silence/2 {
		why := silent(s.Host, err)
		l.relay.end(s, why)
		return why
	}
	select {
	case <-s.Ended():
		return s.Why()
	case <-time.After(whyTime):
	}
	switch {
	case errors.Is(err, wire.ErrSilent):
		return silent(s.Host, err)
	case err == nil:
		return "its connection to " + s.Host.Name + " has ended"
	}
	return fmt.Sprintf("its connection to %s has ended: %s", s.Host.Name, plain(err))
}

// unconnected is why a process has no worker. While the share hears nothing of its host either, the host may be gone, and soon the
// share has ended or is heard again. That is waited for: if the host is gone, the share ends first, as in reason.
func (l *link) unconnected(ctx context.Context, s *Share, err error) string {
	for s.conn.Quiet() > 2*wire.Beat {
		select {
		case <-s.Ended():
			l.relay.end(s, s.Why())
			return s.Why()
		case <-ctx.Done():
			return s.Host.words(err)
		case <-time.After(wire.Beat):
		}
	}
	return s.Host.words(err)
}

// workerEnded is why a link ended whose worker did. The host passes that on alone only where the share goes on.
func (l *link) workerEnded(s *Share) string {
	select {
	case <-s.Ended():
		return s.Why()
	default:
		return "its worker at " + s.Host.Name + " has ended"
	}
}

// end ends a link. The reason, if it is not the process's own end, is left where the client's library looks for it.
func (l *link) end(why string) {
	l.ending.Lock()
	defer l.ending.Unlock()
	if l.ended {
		return
	}
	l.ended = true
	if why != "" {
		_ = l.write(l.reasonFile(), plaintext.Line(why, mostOfWhy)) // the end is seen without it too
	}
	_ = l.unix.Close() // it has ended
	if l.remote != nil {
		_ = l.remote.Close() // as above
	}
}

// isOver reports whether a link has ended.
func (l *link) isOver() bool {
	l.ending.Lock()
	defer l.ending.Unlock()
	return l.ended
}

// write writes a line for the libraries of processes.
func (l *link) write(path, line string) error {
	mode := os.FileMode(0o600)
	if l.relay.spec.Everybody {
		mode = 0o644
	}
	return os.WriteFile(path, []byte(line+"\n"), mode)
}

// noteWorker has the other processes of the share find this one by its worker's number, which is what the host knows
// (lib/remote/client/nvml_pids.c).
func (l *link) noteWorker(number uint32) {
	if number == 0 {
		return // it does not say
	}
	l.worker = number
	_ = l.write(l.workerFile(), strconv.Itoa(l.process)) // without it they see the worker's number
}

// forgetWorker ends what noteWorker has begun.
func (l *link) forgetWorker() {
	if l.worker != 0 {
		_ = os.Remove(l.workerFile()) // as above; the folder is the share's
	}
}

// workerFile is where libraries look for the process of a worker.
func (l *link) workerFile() string {
	return filepath.Join(filepath.Dir(l.relay.spec.Socket), "worker-"+strconv.FormatUint(uint64(l.worker), 10))
}

// reasonFile is where the library of a process looks for why its link has ended (lib/remote/client/session.c).
func (l *link) reasonFile() string {
	return filepath.Join(filepath.Dir(l.relay.spec.Socket), "ended-"+strconv.Itoa(l.process))
}

// errStranger is a process of another user.
var errStranger = errors.New("a process of another user")

// peerOf is the process at the other end of a connection, which must be of this user, or anybody's.
func peerOf(conn *net.UnixConn, everybody bool) (pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	asked := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(asked, err); err != nil {
		return 0, err
	}
	if int(peer.Uid) != os.Getuid() && !everybody {
		return 0, errStranger
	}
	return int(peer.Pid), nil
}
