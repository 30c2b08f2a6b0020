package page

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The errors of this package.
var (
	// ErrCorrupt marks a page that is truncated or holds impossible values.
	ErrCorrupt = errors.New("corrupt page")
	// ErrVersion marks a page of another layout.
	ErrVersion = errors.New("page of another version")
	// ErrFull marks a file system without room for a page.
	ErrFull = errors.New("no room for pages")
)

// allocate reserves a file's blocks: if they came only when they are touched, a
// full file system would end a tenant with SIGBUS.
var allocate = func(file *os.File, size int64) error {
	return unix.Fallocate(int(file.Fd()), 0, 0, size)
}

// create makes a file of the given size, which fill writes. It appears at path only
// when it is complete, and uid owns it if that is not negative.
func create(path string, size int64, mode os.FileMode, uid int, fill func(*os.File) error) error {
	temporary := path + ".new"
	if err := os.RemoveAll(temporary); err != nil {
		return fmt.Errorf("create page: %w", err)
	}
	file, err := os.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_RDWR, mode)
	if err != nil {
		return fmt.Errorf("create page: %w", err)
	}
	err = func() error {
		if err := allocate(file, size); errors.Is(err, unix.ENOSPC) {
			return fmt.Errorf("%w: %w: delete files there or end a tenant", ErrFull, &os.PathError{Op: "allocate", Path: path, Err: err})
		} else if err != nil {
			return fmt.Errorf("allocate %s: %w", path, err)
		}
		if err := fill(file); err != nil {
			return err
		}
		if err := file.Chmod(mode); err != nil { // whatever the umask
			return fmt.Errorf("create page: %w", err)
		}
		if uid >= 0 && uid != os.Geteuid() {
			if err := file.Chown(uid, -1); err != nil {
				return fmt.Errorf("give page to its tenant: %w", err)
			}
		}
		return nil
	}()
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return nil
}

// open opens a page and checks its header against what is expected.
func open(path string, flags int, magic uint64, size int64) (*os.File, error) {
	file, err := os.OpenFile(path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open page: %w", err)
	}
	if err := check(file, magic, size); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return file, nil
}

func check(file *os.File, magic uint64, size int64) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() < size {
		return fmt.Errorf("%w: the file has %d bytes, not the %d of a page", ErrCorrupt, info.Size(), size)
	}
	var head Header
	if err := readAt(file, 0, SizeOfHeader, &head); err != nil {
		return err
	}
	switch {
	case head.Magic != magic:
		return fmt.Errorf("%w: bad magic, not a page of Divvy's", ErrCorrupt)
	case head.Version != Version:
		return fmt.Errorf("%w: it has version %d, this program reads %d: end the tenant and start it again", ErrVersion, head.Version, Version)
	case int64(head.Size) != size:
		return fmt.Errorf("%w: its header says %d bytes, not %d", ErrCorrupt, head.Size, size)
	}
	return nil
}
