package pacing

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// These are the runtime's own, which it leaves open to others (go.dev/issue/67401). They have no body here, so the
// package needs an assembly file, however empty.

//go:linkname entersyscallblock runtime.entersyscallblock
func entersyscallblock()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()

// block waits until a descriptor is ready or the time is over. An ordinary call would keep its place in Go's scheduler
// for up to 10 ms in case it returns soon, and a thread of the runtime would wake again and again to see whether it
// does: at a hundred calls a second that took a third of the agent's time. This one gives its place back at once.
//
//go:nosplit
func block(fd *unix.PollFd, timeout unix.Timespec) (ready bool) {
	entersyscallblock()
	n, errno := uintptr(0), unix.EINTR
	for errno == unix.EINTR { // a signal of the runtime's; the call leaves the rest of the time in timeout
		n, _, errno = unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(fd)), 1, uintptr(unsafe.Pointer(&timeout)), 0, 0, 0)
	}
	exitsyscall()
	return errno == 0 && n > 0
}
