package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// PeerOf returns the process that made a connection, as the kernel keeps it for the
// socket, whose descriptor fd is. pid and uid are what it says in SO_PEERCRED. The number
// alone is that of another process once the one that connected has ended and was waited
// for, so the process must live and be the one that connected; else the error is
// [ErrGone]. It is to be asked when the connection is accepted.
func PeerOf(fd, pid, uid int) (ID, error) {
	return peerOf(peerKernel{fd}, pid, uid)
}

// peerSource is what the kernel tells of a connection's peer.
type peerSource interface {
	// descriptor is a pid file descriptor of the process that connected.
	descriptor() (int, error)
}

type peerKernel struct{ socket int }

// descriptor needs Linux 6.5. Of a process that was waited for there is none, or one that
// says so.
func (k peerKernel) descriptor() (int, error) {
	return unix.GetsockoptInt(k.socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
}

func peerOf(from peerSource, pid, uid int) (ID, error) {
	now, err := sinceBoot()
	if err != nil {
		return ID{}, err
	}
	fd, err := from.descriptor()
	switch {
	case errors.Is(err, unix.ENOPROTOOPT):
		return likelyPeer(pid, uid, now)
	case errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODATA):
		return ID{}, fmt.Errorf("%w: pid %d", ErrGone, pid)
	case err != nil:
		return ID{}, fmt.Errorf("ask for the process that connected: %w", err)
	}
	defer unix.Close(fd)
	id, err := Find(pid)
	if err != nil {
		return ID{}, err
	}
	// While the process lives its number is no other's, so what was found was it.
	if named, err := pidOf(fd); err != nil || named != pid || !id.Alive() {
		return ID{}, fmt.Errorf("%w: pid %d", ErrGone, pid)
	}
	return id, nil
}

// likelyPeer is the process with a pid if nothing shows that it is another one than
// connected: an older kernel does not tell. What is left is a process of the same user,
// which that user may signal in any case.
func likelyPeer(pid, uid int, accepted uint64) (ID, error) {
	id, err := Find(pid)
	if err != nil {
		return ID{}, err
	}
	real, effective := users(pid)
	if real != uid || effective != uid || id.Start > accepted || !id.Alive() {
		return ID{}, fmt.Errorf("%w: pid %d", ErrGone, pid)
	}
	return id, nil
}

// pidOf is the number of the process of a pid file descriptor in this pid namespace, -1
// for one that was waited for (pidfd_open(2)).
func pidOf(fd int) (int, error) {
	text, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return 0, fmt.Errorf("ask for a descriptor's process: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if number, ok := strings.CutPrefix(line, "Pid:"); ok {
			return strconv.Atoi(strings.TrimSpace(number))
		}
	}
	return 0, errors.New("ask for a descriptor's process: the kernel does not tell")
}

// sinceBoot is the time in clock ticks after boot, as that of a process's start.
func sinceBoot() (uint64, error) {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return 0, fmt.Errorf("ask for the time: %w", err)
	}
	return uint64(up.Nano()) / (1e9 / ticks), nil
}
