package tenantdir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
)

// ErrForeign marks a file that is not as an agent of the expected user makes it.
var ErrForeign = errors.New("not made by an agent of this user")

// mostFound bounds how many tenants are read below one directory.
const mostFound = 4096

// Survey finds the tenants whose directories lie in place, a path below base, and
// which an agent of owner made. The caller trusts the path to base and nothing below
// it: no link is followed, no other file system is entered, nothing is waited for, no
// more is read than an agent writes, and a file or directory that does not belong to
// owner, or to which others can write, is refused. That there is no such place is no
// error.
func Survey(base, place string, owner int) ([]backend.Found, error) {
	root, err := openPlace(base, place, owner)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for tenants: %w", err)
	}
	defer root.Close()
	names, err := root.Readdirnames(mostFound)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("look for tenants: %w", err)
	}
	var found []backend.Found
	room := mostRecords
	for _, name := range names {
		if name == containersName || strings.HasSuffix(name, unfinished) {
			continue // it holds tenants of its own, or none yet
		}
		f := survey(root, name, owner, room)
		room -= len(f.Record)
		f.Tenant.ID, f.Tenant.Dir = name, filepath.Join(base, place, name)
		found = append(found, f)
	}
	return found, nil
}

// openPlace opens each directory on the way below base.
func openPlace(base, place string, owner int) (*os.File, error) {
	dir, err := os.OpenFile(base, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Split(filepath.Clean(place), string(filepath.Separator)) {
		next, err := openOwned(dir, name, unix.O_DIRECTORY, owner)
		dir.Close()
		if err != nil {
			return nil, err
		}
		dir = next
	}
	return dir, nil
}

// openOwned opens a file in dir for reading if it belongs to owner and nobody else
// can write to it.
func openOwned(dir *os.File, name string, flags int, owner int) (*os.File, error) {
	path := filepath.Join(dir.Name(), name)
	fd, err := openBeneath(int(dir.Fd()), name, flags|unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC)
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOTDIR):
		return nil, fmt.Errorf("%w: %s: %w", ErrForeign, path, err)
	case err != nil:
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	file := os.NewFile(uintptr(fd), path)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, errors.Join(fmt.Errorf("look at %s: %w", path, err), file.Close())
	}
	kind := uint32(unix.S_IFREG)
	if flags&unix.O_DIRECTORY != 0 {
		kind = unix.S_IFDIR
	}
	if stat.Mode&unix.S_IFMT != kind || int(stat.Uid) != owner || stat.Mode&0o022 != 0 {
		return nil, errors.Join(fmt.Errorf("%w: %s belongs to user %d with mode %o", ErrForeign, path, stat.Uid, stat.Mode), file.Close())
	}
	return file, nil
}

// askerOf is the user of a tenant whose pages are another's; ok is false where they are its own.
func askerOf(dir *os.File) (uid int, ok bool) {
	var target [16]byte
	n, err := unix.Readlinkat(int(dir.Fd()), askerName, target[:])
	if err != nil {
		return 0, false
	}
	uid, err = strconv.Atoi(string(target[:n]))
	return uid, err == nil && uid >= 0
}

// openBeneath opens a name in a directory and enters no other file system, where the
// kernel can see to that (openat2, Linux 5.6): one that its user mounted may never
// answer.
func openBeneath(dir int, name string, flags int) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags), Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(dir, name, &how)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // some sandboxes forbid what they do not know
		return unix.Openat(dir, name, flags, 0)
	}
	return fd, err
}

// survey reads one tenant's directory, and a record of at most so many bytes.
func survey(root *os.File, name string, owner, room int) (f backend.Found) {
	dir, err := openOwned(root, name, unix.O_DIRECTORY, owner)
	if err != nil {
		f.Err = err
		return f
	}
	defer dir.Close()
	f, err = surveyPages(dir, owner)
	f.Err = err
	if f.Record, err = readRecord(dir, owner, min(room, mostRecord)); !errors.Is(err, fs.ErrNotExist) {
		f.RecordErr = err
	}
	return f
}

func readRecord(dir *os.File, owner, most int) ([]byte, error) {
	file, err := openOwned(dir, recordName, 0, owner)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() > int64(most) {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrForeign, file.Name(), most)
	}
	record, err := io.ReadAll(io.LimitReader(file, int64(most)+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file.Name(), err)
	}
	if len(record) > most {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrForeign, file.Name(), most)
	}
	return record, nil
}

// surveyPages reads what the pages tell of a tenant.
func surveyPages(dir *os.File, owner int) (backend.Found, error) {
	file, err := openOwned(dir, configName, 0, owner)
	if err != nil {
		return backend.Found{}, err
	}
	defer file.Close()
	c, err := page.ReadOpenConfig(file)
	if err != nil {
		return backend.Found{}, fmt.Errorf("%s: %w", file.Name(), err)
	}
	t, err := Decode(&c)
	if err != nil {
		return backend.Found{}, fmt.Errorf("%s: %w", file.Name(), err)
	}
	var state unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), stateName, &state, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return backend.Found{}, fmt.Errorf("look at the owner of %s: %w", filepath.Join(dir.Name(), stateName), err)
	}
	// Only root makes tenants of other users.
	if state.Mode&unix.S_IFMT != unix.S_IFREG || owner != 0 && int(state.Uid) != owner {
		return backend.Found{}, fmt.Errorf("%w: %s belongs to user %d with mode %o", ErrForeign, filepath.Join(dir.Name(), stateName), state.Uid, state.Mode)
	}
	t.UID = int(state.Uid)
	if asker, ok := askerOf(dir); ok && owner == 0 {
		t.UID, t.Worker = asker, t.UID
	}
	return backend.Found{
		Tenant: t, Created: time.Unix(state.Mtim.Unix()), NameCut: len(t.Name) >= len(c.Name)-1,
	}, nil
}
