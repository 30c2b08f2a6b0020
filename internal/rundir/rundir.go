// Package rundir knows where Divvy's running state lives: sockets, pages,
// checkpoints. The paths follow from the user's id alone, so that they survive
// logout and are the same in all shells of a user. All of it is on tmpfs and ends
// with the machine, as tenants do.
package rundir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Variable names the environment variable that moves the run directory, for
// tests. It moves pages too and cannot widen a limit: another run directory
// means another agent, which cannot serve a GPU that is served already.
const Variable = "DIVVY_RUNDIR"

// System is the run directory of the agent that serves every user.
const System = "/run/divvy"

// ErrOwner marks a run directory that another user owns or can write to.
var ErrOwner = errors.New("unsafe run directory")

// Path is the run directory of this user. It makes nothing.
func Path() string {
	if dir := os.Getenv(Variable); dir != "" {
		return filepath.Clean(dir)
	}
	if uid := os.Getuid(); uid != 0 {
		return "/dev/shm/divvy-" + strconv.Itoa(uid)
	}
	return System
}

// Tenants is where tenant directories lie: in memory, whatever the run
// directory is on.
func Tenants() string {
	if dir := os.Getenv(Variable); dir != "" {
		return filepath.Join(filepath.Clean(dir), "tenants")
	}
	return filepath.Join("/dev/shm/divvy-"+strconv.Itoa(os.Getuid()), "tenants")
}

// Make creates dir with the given mode unless it exists. In either case it checks
// that the directory is this user's and that nobody else can write to it: every user
// may write to /dev/shm, so another one may have made it first.
func Make(dir string, mode os.FileMode) error {
	if err := os.MkdirAll(dir, mode); err != nil {
		return fmt.Errorf("create run directory: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("check run directory: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%w: %s is not a directory: remove it", ErrOwner, dir)
	case !ok || int(stat.Uid) != os.Getuid():
		return fmt.Errorf("%w: %s belongs to another user: ask its owner or root to remove it", ErrOwner, dir)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%w: others can write to %s: run chmod go-w %s", ErrOwner, dir, dir)
	}
	return nil
}
