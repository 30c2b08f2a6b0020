package mps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
)

// stuck is what is known of connections on which the daemon waits. A daemon serves one connection at a time, and one that says
// nothing keeps it from all others (tried with 535 to 555).
type stuck struct {
	mu sync.Mutex
	// socket is the connection of the last look, since when.
	socket uint64
	since  time.Time
	// guilty are the processes whose connections were cut: the next ones are cut at once.
	guilty []process.ID
	// nobody is when it was told of a connection whose process has ended.
	nobody time.Time
}

// nobodyPause is the time between two events about connections whose processes have ended.
const nobodyPause = time.Minute

// mostGuilty bounds how many processes are remembered.
const mostGuilty = 64

// connection is one of the daemon's, as a descriptor of this process.
type connection struct {
	fd     int
	socket uint64
	// peer is who connected, the zero ID if that process has ended.
	peer process.ID
}

// unblock cuts the connection on which the daemon has waited for a while. Nothing is done where the kernel does not let this
// user look: a daemon of one's own that is no child, with Yama.
func (s *Supervisor) unblock() {
	s.stuck.mu.Lock()
	defer s.stuck.mu.Unlock()
	c, err := s.Daemon.awaited(s.Process())
	if err != nil {
		s.stuck.socket = 0
		return
	}
	defer unix.Close(c.fd)
	now := s.Now()
	if c.socket != s.stuck.socket {
		s.stuck.socket, s.stuck.since = c.socket, now
	}
	known := slices.Contains(s.stuck.guilty, c.peer)
	if !known && now.Sub(s.stuck.since) < slowAnswer {
		return
	}
	if err := unix.Shutdown(c.fd, unix.SHUT_RDWR); err != nil {
		return
	}
	switch {
	case c.peer != (process.ID{}) && !known:
		s.stuck.guilty = append(s.stuck.guilty[max(0, len(s.stuck.guilty)-mostGuilty+1):], c.peer)
	case c.peer == (process.ID{}) && now.Sub(s.stuck.nobody) < nobodyPause:
		return
	case c.peer == (process.ID{}):
		s.stuck.nobody = now
	}
	s.tell(Event{Kind: EventHeld, By: c.peer})
}

// evict cuts the connections of others that may be giving the daemon commands, so that this process can: those of processes
// that are no clients and do not use the driver.
func (s *Supervisor) evict() {
	daemon := s.Process()
	known := clients(s.servers)
	for _, c := range s.Daemon.connections(daemon) {
		client := slices.Contains(known, c.peer.PID) || process.HasOpen(c.peer.PID, map[string]bool{"/dev/nvidiactl": true})
		if !client && !slices.Contains(process.Ancestors(c.peer.PID), daemon.PID) && unix.Shutdown(c.fd, unix.SHUT_RDWR) == nil {
			s.tell(Event{Kind: EventHeld, By: c.peer})
		}
		_ = unix.Close(c.fd)
	}
}

// connections are those of others at the daemon's socket, as descriptors of this process.
func (d Daemon) connections(daemon process.ID) (found []connection) {
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(daemon.PID) + "/fd")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		number, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if c, err := d.borrow(daemon, number); err == nil {
			found = append(found, c)
		}
	}
	return found
}

var (
	// errIdle says that a daemon waits for nobody's connection.
	errIdle = errors.New("the MPS control daemon waits for no connection")
	// transfers are the calls in which a process waits for a connection of its own (/proc/PID/syscall has their numbers).
	transfers = []int{unix.SYS_READ, unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_WRITE, unix.SYS_SENDTO, unix.SYS_SENDMSG}
)

// awaited is the connection at the daemon's socket on which it waits, as the kernel tells it. One of this process's own, such as
// of a program that asks for it, does not count.
func (d Daemon) awaited(daemon process.ID) (c connection, err error) {
	number, err := waitsFor(daemon.PID)
	if err != nil {
		return c, err
	}
	return d.borrow(daemon, number)
}

// borrow is a connection at the daemon's socket by its number in the daemon.
func (d Daemon) borrow(daemon process.ID, number int) (c connection, err error) {
	pidfd, err := unix.PidfdOpen(daemon.PID, 0)
	if err != nil {
		return c, fmt.Errorf("look at the MPS control daemon: %w", err)
	}
	defer unix.Close(pidfd)
	if !daemon.Alive() {
		return c, errIdle
	}
	c.fd, err = unix.PidfdGetfd(pidfd, number, 0)
	if err != nil {
		return c, fmt.Errorf("look at the MPS control daemon: %w", err)
	}
	if err := c.identify(d.Dirs.Pipe); err != nil {
		return c, errors.Join(err, unix.Close(c.fd))
	}
	return c, nil
}

// waitsFor is the descriptor on which a process waits.
func waitsFor(pid int) (int, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/syscall")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("look at the MPS control daemon: %w", err)
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, errIdle
	}
	call, err := strconv.Atoi(fields[0])
	if err != nil || !slices.Contains(transfers, call) {
		return 0, errIdle
	}
	number, err := strconv.ParseInt(fields[1], 0, 32)
	if err != nil {
		return 0, errIdle
	}
	return int(number), nil
}

// identify finds out whose connection it is.
func (c *connection) identify(pipe string) error {
	var info unix.Stat_t
	if err := unix.Fstat(c.fd, &info); err != nil {
		return fmt.Errorf("look at a connection: %w", err)
	}
	c.socket = info.Ino
	if _, err := unix.Getpeername(c.fd); err != nil {
		return errIdle // it listens, or is no socket
	}
	name, err := unix.Getsockname(c.fd)
	if err != nil {
		return fmt.Errorf("look at a connection: %w", err)
	}
	at, ok := name.(*unix.SockaddrUnix)
	if !ok || filepath.Dir(at.Name) != pipe {
		return errIdle
	}
	peer, err := unix.GetsockoptUcred(c.fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return fmt.Errorf("look at a connection: %w", err)
	}
	if _, own := asking.Load(int(peer.Pid)); own || int(peer.Pid) == os.Getpid() {
		return errIdle
	}
	c.peer, err = process.PeerOf(c.fd, int(peer.Pid), int(peer.Uid))
	if err != nil && !errors.Is(err, process.ErrGone) {
		return fmt.Errorf("look at a connection: %w", err)
	}
	return nil
}
