package gpulock

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
)

// sharedDir is where every user can make files, and processes of other network namespaces see them.
const sharedDir = "/dev/shm"

// errShared is a GPU whose file is locked.
var errShared = errors.New("locked by another process")

// file is the path of a GPU's file, whose lock (flock(2)) is seen in other network namespaces, where the socket is not.
func (k Kind) file(uuid string) string {
	name := strings.Map(func(r rune) rune {
		if r == '-' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return '.'
	}, strings.TrimPrefix(string(k), "@")+uuid)
	return filepath.Join(sharedDir, ".lock."+name)
}

// tries bounds how often a file is opened anew that was removed meanwhile.
const tries = 16

// lockShared locks a GPU's file. It returns errShared if somebody else has the lock, and nil without an error where no
// such file can be had: the lock is advice, and the socket is there too.
func lockShared(path string) (*os.File, error) {
	for range tries {
		file, err := openShared(path)
		if err != nil {
			return nil, nil //nolint:nilnil,nilerr // somebody made it otherwise, or there is no place for it
		}
		switch err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case errors.Is(err, unix.EWOULDBLOCK):
			_ = file.Close() // it was only looked at
			return nil, errShared
		case err != nil:
			_ = file.Close()
			return nil, nil //nolint:nilnil,nilerr // this file system has no locks
		}
		if is, err := os.Lstat(path); err == nil {
			if was, err := file.Stat(); err == nil && os.SameFile(is, was) {
				return file, nil
			}
		}
		_ = file.Close() // who had it has removed it
	}
	return nil, nil //nolint:nilnil // somebody plays with it
}

// openShared opens a GPU's file or makes it. Nobody writes to it, so that everybody may read it.
func openShared(path string) (*os.File, error) {
	const flags = unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	file, err := os.OpenFile(path, os.O_RDONLY|flags, 0)
	if errors.Is(err, os.ErrNotExist) {
		file, err = os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL|flags, 0o444)
		if errors.Is(err, os.ErrExist) {
			file, err = os.OpenFile(path, os.O_RDONLY|flags, 0)
		} else if err == nil {
			err = file.Chmod(0o444) // whatever the umask
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the lock of a GPU: %w", err)
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("open the lock of a GPU: %s is no file", path), file.Close())
	}
	return file, nil
}

// unlockShared removes a file that is locked, where it is this user's, and lets go of it.
func unlockShared(file *os.File) {
	if file != nil {
		_ = os.Remove(file.Name()) // of another user's it stays, without a lock
		_ = file.Close()
	}
}

// sharedHolder tells who has the lock of a GPU's file, as the kernel tells; ok is false if nobody has whom this process
// can see.
func (k Kind) sharedHolder(uuid string) (h Holder, ok bool) {
	pid, ok := lockedBy(k.file(uuid))
	if !ok {
		return h, false
	}
	h = Holder{UUID: uuid, UID: process.Owner(pid), PID: pid}
	if h.UID >= 0 {
		h.User = process.UserName(h.UID)
	}
	return h, true
}

// lockedBy finds the process that has locked a file, in the kernel's list of locks (proc_locks(5)). It takes no lock, so
// that who looks keeps nobody away.
func lockedBy(path string) (pid int, ok bool) {
	var stat unix.Stat_t
	if unix.Lstat(path, &stat) != nil {
		return 0, false
	}
	inode := fmt.Sprintf("%02x:%02x:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev), stat.Ino)
	file, err := os.Open("/proc/locks")
	if err != nil {
		return 0, false
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 8 && fields[1] == "FLOCK" && fields[3] == "WRITE" && fields[5] == inode {
			pid, err := strconv.Atoi(fields[4])
			return pid, err == nil && pid > 0
		}
	}
	return 0, false
}

// sharedHolders finds the GPUs whose files are locked by processes that this one can see.
func (k Kind) sharedHolders() (all []Holder) {
	prefix := k.file("")
	files, err := filepath.Glob(prefix + "*")
	if err != nil {
		return nil
	}
	for _, path := range files {
		if h, ok := k.sharedHolder(strings.TrimPrefix(path, prefix)); ok {
			all = append(all, h)
		}
	}
	return all
}
