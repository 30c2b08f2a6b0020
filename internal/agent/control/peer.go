package control

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
)

// Peer is the process at the other end, as the kernel names it.
type Peer struct {
	// Process is who connected, as it was found when the connection was accepted, zero
	// where it has no number in the agent's pid namespace or was not found.
	Process process.ID
	UID     int
	// Maker is whose user namespace the process is in, UID if it is in none: of a user who
	// has several ids there it is the one that is known outside.
	Maker int
	// unfound is why Process is not known though it has a number.
	unfound error
	// again finds it once more; nil where nobody asks.
	again func() (process.ID, error)
	done  <-chan struct{}
	// left asks the kernel; nil where it is not asked.
	left func() bool
}

// NewPeer describes a peer whose connection ends when done is closed. left reports
// whether the other end is closed, as it is a while before done; it may be nil.
func NewPeer(id process.ID, uid int, done <-chan struct{}, left func() bool) *Peer {
	return &Peer{Process: id, UID: uid, Maker: uid, done: done, left: left}
}

// Holder is the process that connected, for a request that ties something to it. It is
// zero for one without a number in the agent's pid namespace. One that has ended, while
// others have its connection, gets an error: its number may be another process's by now.
func (p *Peer) Holder() (process.ID, error) {
	now, err := p.Process, p.unfound
	if err == nil && p.again != nil {
		// The kernel tells it exactly; two processes may have started at the same time.
		now, err = p.again()
	}
	if err != nil && !errors.Is(err, process.ErrGone) {
		return process.ID{}, Errorf(CodeInternal, "cannot tell which process made this connection: %s; connect again", err)
	}
	if err != nil || now != p.Process || now.PID != 0 && !now.Alive() {
		return process.ID{}, Errorf(CodeInvalid, "the process that made this connection has ended, or cannot be told from another one: the process that asks has to connect itself")
	}
	return p.Process, nil
}

// Outside reports whether the process that connected is in the agent's own user namespace now, whichever it was in when it
// connected. Where that cannot be told it is not.
func (p *Peer) Outside() bool {
	id, err := p.Holder()
	return err == nil && id.PID != 0 && id.SharesUsers()
}

// Done is closed when the connection has ended.
func (p *Peer) Done() <-chan struct{} {
	return p.done
}

// Left reports whether nobody has the other end any more, also if that was not read yet.
func (p *Peer) Left() bool {
	select {
	case <-p.done:
		return true
	default:
		return p.left != nil && p.left()
	}
}

// hungUp reports whether the other end of a connection is closed.
func hungUp(conn syscall.Conn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return true
	}
	fds := []unix.PollFd{{}}
	err = raw.Control(func(fd uintptr) {
		fds[0].Fd = int32(fd)
		_, _ = unix.Poll(fds, 0) // if it fails, it tells nothing
	})
	return err != nil || fds[0].Revents&unix.POLLHUP != 0
}

// identify finds the process that made a connection.
func identify(conn *net.UnixConn, cred *unix.Ucred) Peer {
	p := Peer{UID: int(cred.Uid), Maker: int(cred.Uid)}
	if cred.Pid == 0 {
		return p
	}
	p.again = func() (id process.ID, err error) {
		raw, err := conn.SyscallConn()
		if err != nil {
			return id, err
		}
		unasked := raw.Control(func(fd uintptr) {
			id, err = process.PeerOf(int(fd), int(cred.Pid), int(cred.Uid))
		})
		return id, errors.Join(err, unasked)
	}
	p.Process, p.unfound = p.again()
	// Root makes user namespaces for others. What it makes them for is not to be seen.
	if maker, ok := process.Maker(p.Process.PID); p.unfound == nil && ok && maker != 0 && p.Process.Alive() {
		p.Maker = maker
	}
	return p
}

// PeerCredentials asks the kernel who is at the other end of a connection.
func PeerCredentials(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("ask for the peer: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, fmt.Errorf("ask for the peer: %w", err)
	}
	if credErr != nil {
		return nil, fmt.Errorf("ask for the peer: %w", credErr)
	}
	return cred, nil
}
