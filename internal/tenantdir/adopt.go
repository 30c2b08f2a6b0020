package tenantdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/process"
)

// unfinished ends the name of a directory that is not complete yet.
const unfinished = ".new"

// Adopted reports whether the tenant was made by another user's agent.
func (d Dir) Adopted() bool {
	_, err := os.Lstat(d.Origin())
	return err == nil
}

// Strangers implements [backend.Adopter].
func (*Tenants) Strangers(ctx context.Context, place string, uid int) ([]backend.Stranger, error) {
	base, below, err := trusted(place)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found, err := Survey(base, below, uid)
	strangers := make([]backend.Stranger, 0, len(found))
	at := map[process.File]int{} // whose state page a file is
	for i, f := range found {
		s := backend.Stranger{Found: f}
		if f.Err == nil {
			s.Live, s.Err = strangerLives(filepath.Join(base, below), f.Tenant.ID, uid)
		}
		if state, err := process.FileAt(Dir(f.Tenant.Dir).State()); s.Live && err == nil {
			at[state] = i
		}
		strangers = append(strangers, s)
	}
	for _, id := range process.Of(uid) {
		if len(at) == 0 || ctx.Err() != nil {
			break
		}
		for file := range process.UsesOf(id.PID).Mapped() {
			i, ok := at[file]
			if started := id.Started(); ok && (strangers[i].Since.IsZero() || started.Before(strangers[i].Since)) {
				strangers[i].Since = started
			}
		}
	}
	return strangers, err
}

// strangerLives asks the kernel for the locks of a state page that is not the agent's.
func strangerLives(place, id string, uid int) (bool, error) {
	dir, err := openTrusted(filepath.Join(place, id), uid)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	state, err := openOwned(dir, stateName, 0, uid)
	if err != nil {
		return false, err
	}
	defer state.Close()
	return page.AnyLiveIn(state)
}

// trusted divides a path in two: what lies above belongs to root, who leads nobody
// astray, and what lies below is the user's. Of root's own path the last name is below.
func trusted(path string) (base, below string, err error) {
	path = filepath.Clean(path)
	if !filepath.IsAbs(path) {
		return "", "", fmt.Errorf("%w: %q is not the path of a directory", ErrForeign, path)
	}
	names := strings.Split(path[1:], string(filepath.Separator))
	base = "/"
	for i, name := range names {
		next := filepath.Join(base, name)
		var stat unix.Stat_t
		if err := unix.Lstat(next, &stat); err != nil {
			return "", "", fmt.Errorf("look for tenants: %w", err)
		}
		if stat.Uid != 0 || i == len(names)-1 {
			return base, filepath.Join(names[i:]...), nil
		}
		if stat.Mode&unix.S_IFMT != unix.S_IFDIR || stat.Mode&0o022 != 0 && stat.Mode&unix.S_ISVTX == 0 {
			return "", "", fmt.Errorf("%w: others can change what %s is", ErrForeign, next)
		}
		base = next
	}
	return "", "", fmt.Errorf("%w: %q is not the path of a directory", ErrForeign, path)
}

// openTrusted opens a directory of that user.
func openTrusted(path string, uid int) (*os.File, error) {
	base, below, err := trusted(path)
	if err != nil {
		return nil, err
	}
	return openPlace(base, below, uid)
}

// Adopt implements [backend.Adopter]. The agent gets a directory of its own with a
// config page of its own, which is the record of what is granted, and links to the
// user's two pages, which the tenant's processes have mapped: nothing that the user
// does to names leads the agent elsewhere from then on. A program that trusts nothing
// else keeps its limit; one that changes its config page is held to the agent's by
// whoever compares the driver's figures with that.
func (ts *Tenants) Adopt(_ context.Context, from string, t backend.Tenant) error {
	if filepath.Dir(from) == ts.config.Root {
		return nil // root's own agent made it here
	}
	dir, err := openTrusted(from, t.UID)
	if err != nil {
		return fmt.Errorf("adopt a tenant: %w", err)
	}
	defer dir.Close()
	d := Dir(t.Dir)
	if d.adoptedFrom(dir) {
		return nil
	}
	draft := Dir(t.Dir + unfinished)
	steps := []struct {
		name string
		do   func() error
	}{
		{"adopt-cleared", func() error { return os.RemoveAll(string(draft)) }},
		{"adopt-made", func() error {
			return errors.Join(os.MkdirAll(string(draft), 0o755), os.Chmod(string(draft), 0o755))
		}},
		{"adopt-linked-theirs", func() error { return linkOwned(dir, configName, t.UID, draft.Theirs()) }},
		{"adopt-linked-state", func() error { return linkOwned(dir, stateName, t.UID, draft.State()) }},
		{"adopt-granted", func() error { return ts.writeGranted(draft, t) }},
		{"adopt-linked-origin", func() error { return os.Symlink(from, draft.Origin()) }},
		{"adopt-recorded", func() error { return draft.keepAny(t.Record) }},
		{"adopt-moved", func() error { return os.Rename(string(draft), string(d)) }},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			return errors.Join(fmt.Errorf("adopt a tenant: %w", err), os.RemoveAll(string(draft)))
		}
		if ts.config.Step != nil {
			ts.config.Step(step.name)
		}
	}
	return d.Update(t) // what its processes read
}

// adoptedFrom reports whether this directory was made for the tenant in dir.
func (d Dir) adoptedFrom(dir *os.File) bool {
	var ours, theirs unix.Stat_t
	err := errors.Join(unix.Lstat(d.State(), &ours), unix.Fstatat(int(dir.Fd()), stateName, &theirs, unix.AT_SYMLINK_NOFOLLOW))
	return err == nil && ours.Dev == theirs.Dev && ours.Ino == theirs.Ino
}

// Told implements [backend.Adopter].
func (ts *Tenants) Told(t backend.Tenant) (backend.Tenant, error) {
	d := Dir(t.Dir)
	path := d.Config()
	if d.Adopted() {
		path = d.Theirs()
	}
	c, err := page.ReadConfig(path)
	if err != nil {
		return backend.Tenant{}, err
	}
	return Decode(&c)
}

// linkOwned makes a link to the file of that name, which must be its user's. It links
// what was opened, whatever has the name by then.
func linkOwned(dir *os.File, name string, uid int, to string) error {
	file, err := openOwned(dir, name, 0, uid)
	if err != nil {
		return err
	}
	defer file.Close()
	opened := fmt.Sprintf("/proc/self/fd/%d", file.Fd())
	if err := unix.Linkat(unix.AT_FDCWD, opened, unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW); err != nil {
		return fmt.Errorf("link %s: %w", file.Name(), err)
	}
	return nil
}

// writeGranted writes the agent's own config page.
func (ts *Tenants) writeGranted(d Dir, t backend.Tenant) error {
	c, err := Encode(t, ts.config.PIDNamespace)
	if err != nil {
		return err
	}
	return page.WriteConfig(d.Config(), c, 0o644)
}

// removeOrigin removes the directory in which an adopted tenant was made, with its
// files, if it is still its user's.
func (d Dir) removeOrigin() error {
	from, err := os.Readlink(d.Origin())
	if err != nil {
		return nil //nolint:nilerr // it was not adopted
	}
	info, err := os.Lstat(d.State())
	if err != nil {
		return nil //nolint:nilerr // whose it was is not known any more
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	uid := int(stat.Uid)
	parent, err := openTrusted(filepath.Dir(from), uid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove an adopted tenant's directory: %w", err)
	}
	defer parent.Close()
	name := filepath.Base(from)
	dir, err := openOwned(parent, name, unix.O_DIRECTORY, uid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove an adopted tenant's directory: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(mostFound)
	faults := []error{err}
	for _, file := range names {
		faults = append(faults, unix.Unlinkat(int(dir.Fd()), file, 0))
	}
	faults = append(faults, unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR))
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("remove an adopted tenant's directory: %w", err)
	}
	return nil
}
