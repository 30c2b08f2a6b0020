package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// leastShared is room in /dev/shm for a few dozen tenants, each with its pages and
// its copies of the libraries.
const leastShared = 64 << 20

// leastFree is less than one tenant needs.
const leastFree = 1 << 20

func (h Host) sharedMemory() Check {
	c := Check{ID: "shared-memory", Name: "shared memory", Status: OK}
	dir := filepath.Join(h.Root, "/dev/shm")
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		c.Status, c.Found = Fail, fmt.Sprintf("%s: %v", dir, err)
		c.Next = "mount a tmpfs there"
		return c
	}
	free := stat.Bavail * uint64(stat.Bsize)
	c.Found = fmt.Sprintf("%d MiB free in %s", free>>20, dir)
	full := free < leastFree || stat.Ffree == 0 && stat.Files > 0
	if full || free < leastShared {
		holders := rundir.LookFull(dir)
		c.Status, c.Next = Warn, holders.Remedy(os.Getuid())
		if holders.Holders != "" {
			c.Found += "; " + holders.Holders + " there"
		}
	}
	switch {
	case full:
		c.Status = Fail
	case stat.Flags&unix.ST_NOEXEC != 0:
		c.Found += ", noexec: libraries are kept elsewhere"
	}
	return c
}

// rundirs checks the user's run directory, and the system agent's.
func (h Host) rundirs() []Check {
	own := runDirectory(h.Rundir)
	if own.Status == Fail && h.Served && h.Rundir != rundir.System {
		own.Status = Warn
	}
	if h.Rundir == rundir.System {
		return []Check{h.system()}
	}
	return []Check{own, h.system()}
}

// runDirectory checks a run directory of this user.
func runDirectory(dir string) Check {
	c := Check{ID: "rundir.own", Name: "run directory", Status: OK, Found: dir}
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		c.Found += " (made when needed)"
		return c
	}
	if err == nil {
		err = rundir.Fault(dir, info)
	}
	if err == nil {
		err = writable(dir)
	}
	if err != nil {
		c.Status, c.Found = Fail, err.Error()
	}
	return c
}

// system checks the run directory of the system agent, which all users must be able to
// enter and root alone to change.
func (h Host) system() Check {
	dir := filepath.Join(h.Root, rundir.System)
	c := Check{ID: "rundir.system", Name: "system run directory", Status: OK, Found: dir}
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		c.Found += " (a system agent makes it)"
		return c
	}
	if err != nil {
		c.Status, c.Found = Fail, err.Error()
		return c
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		c.Status, c.Found, c.Next = Fail, dir+" is not a directory", "as root, remove it"
	case ok && stat.Uid != 0:
		c.Status, c.Found = Fail, fmt.Sprintf("%s belongs to user %s", dir, process.UserName(int(stat.Uid)))
		c.Next = "as root, remove it: what that user put there is not the system agent's"
	case info.Mode().Perm()&0o022 != 0:
		c.Status, c.Found, c.Next = Fail, "others can write to "+dir, "as root, run chmod go-w "+dir
	case info.Mode().Perm()&0o055 != 0o055:
		c.Status, c.Found = Warn, dir+" is closed to users"
		c.Next = "as root, run chmod 755 " + dir + "; a system agent does so when it starts"
	case os.Getuid() == 0 && writable(dir) != nil:
		c.Status, c.Found, c.Next = Fail, dir+" cannot be written to", "mount a writable file system there"
	}
	return c
}

// writable returns why this user cannot write to a directory, or nil.
func writable(dir string) error {
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return fmt.Errorf("write to %s: %w: mount a writable file system there", dir, err)
	}
	return nil
}
