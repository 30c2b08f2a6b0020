// Package rundir knows where Divvy's running state lives: sockets, pages,
// checkpoints. The paths follow from the user's id alone, so that they survive
// logout and are the same in all shells of a user. All of it is on tmpfs and ends
// with the machine, as tenants do.
package rundir

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"unicode/utf8"

	"github.com/divvy-gpu/divvy/internal/process"
)

// Variable names the environment variable that moves the run directory, for
// tests. It moves pages too and cannot widen a limit: another run directory
// means another agent, which cannot serve a GPU that is served already.
const Variable = "DIVVY_RUNDIR"

// System is the run directory of the agent that serves every user.
const System = "/run/divvy"

// ErrOwner marks a run directory that another user owns or can write to.
var ErrOwner = errors.New("unsafe run directory")

// errText marks a run directory whose path cannot be written down.
var errText = errors.New("the path of the run directory is not valid UTF-8: choose another one")

// Path is the run directory of this user. It makes nothing. Root's is that of the
// system agent.
func Path() string {
	if dir := os.Getenv(Variable); dir != "" {
		return filepath.Clean(dir)
	}
	if os.Getuid() == 0 {
		return System
	}
	return of(os.Getuid())
}

// Own is the run directory of the agent that this user has for themselves. Root's is
// another than the system agent's, so that neither stands in the other's way.
func Own() string {
	if dir := os.Getenv(Variable); dir != "" {
		return filepath.Clean(dir)
	}
	return of(os.Getuid())
}

// owns begins the names of the users' own run directories.
const owns = "/dev/shm/divvy-"

func of(uid int) string { return owns + strconv.Itoa(uid) }

// Tenants is where tenant directories lie: in memory, whatever the run
// directory is on.
func Tenants() string {
	return filepath.Join(Own(), "tenants")
}

// TenantsOf lists where a user's own agent keeps its tenants' directories, the usual
// place first; the others are for a machine where nothing may be executed there.
func TenantsOf(uid int) []string {
	id := strconv.Itoa(uid)
	return []string{filepath.Join(of(uid), "tenants"), "/run/user/" + id + "/divvy/tenants", "/var/tmp/divvy-" + id + "/tenants"}
}

// LeftBySystem reports whether root's directories have a tenant of that id which a system
// agent granted. One that it took over from a user's own agent is known to that user's
// next agent.
func LeftBySystem(tenant string) bool {
	for _, place := range append(TenantsOf(0), filepath.Join(System, "tenants")) {
		dir := filepath.Join(place, filepath.Base(tenant))
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() {
			continue
		}
		_, adopted := os.Lstat(filepath.Join(dir, "origin"))
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid == 0 && adopted != nil {
			return true
		}
	}
	return false
}

// Mode is the mode of a run directory of this user. Root's is open to all, because
// the system agent's socket lies in it; what others may not read has a mode of its own.
func Mode() os.FileMode {
	if os.Getuid() == 0 {
		return 0o755
	}
	return 0o700
}

// Make creates dir unless it exists, and lets everybody have what mode gives them: an
// earlier program may have made it with less. It checks that the directory is this
// user's and that nobody else can write to it: every user may write to /dev/shm, so
// another one may have made it first. Its path must be text, because agents write it down.
func Make(dir string, mode os.FileMode) error {
	if !utf8.ValidString(dir) {
		return fmt.Errorf("%w: %q", errText, dir)
	}
	if err := os.MkdirAll(dir, mode); errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("create run directory: %w: mount a writable file system there", err)
	} else if _, there := os.Lstat(dir); err != nil && there != nil {
		return fmt.Errorf("create run directory: %w", err)
	}
	info, err := os.Lstat(dir) // of what is there, it says what is wrong
	if err != nil {
		return fmt.Errorf("check run directory: %w", err)
	}
	if fault := Fault(dir, info); fault != nil {
		return fault
	}
	if info.Mode().Perm()&mode == mode {
		return nil
	}
	if err := os.Chmod(dir, info.Mode().Perm()|mode); err != nil {
		return fmt.Errorf("open run directory: %w", err)
	}
	return nil
}

// MakeBelow is Make of a directory and, before that, of the run directory that it is in.
// What is wrong with that is said once.
func MakeBelow(dir string, mode os.FileMode) error {
	if err := Make(filepath.Dir(dir), Mode()); err != nil {
		return err
	}
	return Make(dir, mode)
}

// Fault says why a directory cannot be a run directory of this user, with what to do
// about it, or nil.
func Fault(dir string, info os.FileInfo) error {
	if fault := FolderFault(dir, info); fault != nil {
		return fmt.Errorf("%w: %w", ErrOwner, fault)
	}
	return nil
}

// FolderFault is Fault of any folder that must be this user's alone. It does not say what
// the folder is for.
func FolderFault(dir string, info os.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory: remove it", dir)
	case !ok:
		return fmt.Errorf("the system does not tell who owns %s", dir)
	case int(stat.Uid) != os.Getuid():
		remedy := "ask them or an administrator to remove it"
		if os.Getuid() == 0 {
			remedy = "remove it"
		}
		return fmt.Errorf("%s belongs to user %s: %s", dir, process.UserName(int(stat.Uid)), remedy)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others can write to %s: run chmod go-w %s", dir, dir)
	}
	return nil
}

// Explain returns the fault of a user's run directory in place of an error that it caused:
// who made it before the user did can keep them out of it. Other errors stay.
func Explain(err error, dir string) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	info, missing := os.Lstat(dir)
	if missing != nil {
		return err
	}
	return cmp.Or(Fault(dir, info), err)
}

// Others lists the run directories that users of this machine have for their own
// agents, by user, as their names say. Nobody has looked whose they are.
func Others() map[int]string {
	found, err := filepath.Glob(owns + "*")
	if err != nil {
		return nil
	}
	dirs := map[int]string{}
	for _, dir := range found {
		if uid, err := strconv.ParseUint(dir[len(owns):], 10, 31); err == nil && of(int(uid)) == dir {
			dirs[int(uid)] = dir
		}
	}
	return dirs
}
