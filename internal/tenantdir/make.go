package tenantdir

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
)

// Access says who can reach a tenant's directory.
type Access string

// The kinds of access.
const (
	// AccessOwner is for a tenant of the agent's own user.
	AccessOwner Access = "owner"
	// AccessUsers is for a tenant of another user: every user may read its
	// directory, and the tenant's user writes the state page.
	AccessUsers Access = "users"
	// AccessContainer lets every user write the state page and the pulse pages,
	// because processes in a container run as any user. Only root can enter the
	// directory above.
	AccessContainer Access = "container"
)

func (a Access) modes() (dir, config os.FileMode) {
	if a == AccessOwner {
		return 0o700, 0o600
	}
	return 0o755, 0o644
}

// Make makes the directory with the agent's record, if that is not nil, and the pages
// that c describes. A record that exists stays, and so do pages that exist and are
// sound: they may have been changed since they were made. The record comes first, so
// that whatever else is found has one. The state page belongs to uid unless access is
// AccessContainer.
func (d Dir) Make(c *page.Config, record []byte, access Access, uid int) error {
	mode, configMode := access.modes()
	if err := os.MkdirAll(string(d), mode); err != nil {
		return fmt.Errorf("make tenant directory: %w", err)
	}
	if err := os.Chmod(string(d), mode); err != nil { // whatever the umask
		return fmt.Errorf("make tenant directory: %w", err)
	}
	if _, err := os.Lstat(d.Record()); err != nil && record != nil {
		if err := d.keep(record); err != nil {
			return err
		}
	}
	if _, err := page.ReadConfig(d.Config()); err != nil {
		if err := page.WriteConfig(d.Config(), *c, configMode); err != nil {
			return err
		}
	}
	devices := int(c.DeviceCount)
	if access != AccessContainer {
		return page.CreateState(d.State(), devices, uid)
	}
	faults := []error{page.CreateOpenState(d.State(), devices)}
	for i := range gpusOf(c) {
		// A running container gets no further mounts, so every pulse page is made
		// now, even if the tenant never needs it.
		faults = append(faults, page.CreateOpenPulse(d.Pulse(i)))
	}
	return errors.Join(faults...)
}

// NoteAsker notes the tenant's user where the pages are another's.
func (d Dir) NoteAsker(uid int) error {
	if err := os.Symlink(strconv.Itoa(uid), d.Asker()); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("note the tenant's user: %w", err)
	}
	return nil
}

// Owe writes what a tenant that was just made, with the pages that c describes, has to pay first.
func (d Dir) Owe(c *page.Config, shares []backend.Share) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("read the clock: %w", err)
	}
	var faults []error
	for i := range shares {
		if owed := shares[i].Owed; owed > 0 {
			faults = append(faults, page.Owe(d.State(), int(c.DeviceCount), i, uint64(now.Nano()), owed))
		}
	}
	return errors.Join(faults...)
}

// Remove removes the directory and all that is in it, and the directory in which an
// adopted tenant was made.
func (d Dir) Remove() error {
	return errors.Join(d.removeOrigin(), d.removeAll())
}

// mostRemovals bounds how often a directory is removed into which somebody writes.
const mostRemovals = 10

// removeAll begins again where a file has come meanwhile: the record may just be replaced.
func (d Dir) removeAll() (err error) {
	for range mostRemovals {
		if err = os.RemoveAll(string(d)); !errors.Is(err, unix.ENOTEMPTY) {
			break
		}
	}
	return err
}

// Complete reports whether the pages that Make made are still there.
func (d Dir) Complete() bool {
	for _, path := range []string{d.Config(), d.State()} {
		if _, err := os.Lstat(path); err != nil {
			return false
		}
	}
	return true
}
