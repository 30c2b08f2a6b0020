package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// leastShared is room in /dev/shm for a few dozen tenants, each with its pages and
// its copies of the libraries.
const leastShared = 64 << 20

func (h Host) sharedMemory() Check {
	c := Check{Name: "shared memory", Status: OK}
	dir := filepath.Join(h.Root, "/dev/shm")
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		c.Status, c.Found = Fail, fmt.Sprintf("%s: %v", dir, err)
		c.Next = "mount a tmpfs there"
		return c
	}
	free := stat.Bavail * uint64(stat.Bsize)
	c.Found = fmt.Sprintf("%d MiB free in %s", free>>20, dir)
	switch {
	case free < leastShared:
		c.Status = Warn
		c.Next = fmt.Sprintf("make room: at least %d MiB (in a container, --shm-size)", leastShared>>20)
	case stat.Flags&unix.ST_NOEXEC != 0:
		c.Found += ", noexec: libraries are kept elsewhere"
	}
	return c
}

func (h Host) rundir() Check {
	c := Check{Name: "run directory", Status: OK, Found: h.Rundir}
	info, err := os.Lstat(h.Rundir)
	if errors.Is(err, fs.ErrNotExist) {
		c.Found += " (made when needed)"
		return c
	}
	if err != nil {
		c.Status, c.Found = Fail, err.Error()
		return c
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir() || !ok || int(stat.Uid) != os.Getuid():
		c.Status, c.Found = Fail, h.Rundir+" is not your directory"
		c.Next = "ask its owner or root to remove it"
	case info.Mode().Perm()&0o022 != 0:
		c.Status, c.Found = Fail, "others can write to "+h.Rundir
		c.Next = "run chmod go-w " + h.Rundir
	}
	return c
}
