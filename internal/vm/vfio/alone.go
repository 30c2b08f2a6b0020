package vfio

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Alone tells whether somebody has a disk for himself alone, which is named from /dev: it is mounted in whatever namespace,
// or the kernel or a process keeps it from others. Nothing is read of the disk, and it is let go of at once.
func (l live) Alone(node string) (taken bool, err error) {
	name := filepath.Join("/dev", node)
	r := &reader{over: make(chan struct{})}
	if !r.within(l.limit, "open "+name, func() { r.err = openAlone(name) }) {
		return false, &fs.PathError{Op: "open", Path: name, Err: os.ErrDeadlineExceeded}
	}
	return errors.Is(r.err, unix.EBUSY), r.err
}

// openAlone opens a disk for nobody else. Who else asks this has it for a moment as well, so it is tried again.
func openAlone(name string) error {
	const tries, pause = 3, 20 * time.Millisecond
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if info.Mode()&(fs.ModeDevice|fs.ModeCharDevice) != fs.ModeDevice {
		return &fs.PathError{Op: "open", Path: name, Err: unix.ENOTBLK}
	}
	for range tries {
		var fd int
		if fd, err = unix.Open(name, unix.O_RDONLY|unix.O_EXCL|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
			return unix.Close(fd)
		}
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		<-time.After(pause)
	}
	return &fs.PathError{Op: "open", Path: name, Err: err}
}
