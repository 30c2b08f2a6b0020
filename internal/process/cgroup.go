package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// apart is the cgroup for processes that leave theirs, where the outermost one takes none.
const apart = "divvy-apart"

// LeaveGroups moves a process out of all its cgroups, to the outermost that the file system at root shows, so that it does
// not end with the container or service that started it. Root is "/" or, in a container with the machine's processes,
// "/proc/1/root". Processes that it starts later follow it; those that it has stay where they are.
func (id ID) LeaveGroups(root string) error {
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", id.PID))
	if err != nil {
		return fmt.Errorf("read the cgroups of process %d: %w", id.PID, err)
	}
	if !id.Alive() { // the file was another process's
		return fmt.Errorf("read the cgroups of process %d: it has ended", id.PID)
	}
	if err := leaveGroups(filepath.Join(root, "sys/fs/cgroup"), string(groups), id.PID); err != nil {
		return fmt.Errorf("move process %d out of its cgroups: %w", id.PID, err)
	}
	return nil
}

// Group is a cgroup by its folder, and by the name that it has or gets there; "." is the folder itself.
type Group struct{ Folder, Name string }

// beside is the cgroup for processes that work for others and are not theirs.
const beside = "divvy-workers"

// GroupsBeside are the cgroups for a process that works for this one and is not to be reached by the other's user: what it
// takes counts where this one's counts. That is the process's own cgroup where that is root's, and else one in the nearest
// above which is.
func (id ID) GroupsBeside() ([]Group, error) {
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", id.PID))
	if err == nil && !id.Alive() { // the file was another process's
		err = ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("read the cgroups of process %d: %w", id.PID, err)
	}
	return groupsBeside("/sys/fs/cgroup", string(groups), ofRoot), nil
}

// ofRoot reports whether nobody but root moves processes to a cgroup or signals all that are in it.
func ofRoot(folder string) bool {
	for _, path := range []string{folder, filepath.Join(folder, "cgroup.procs")} {
		var stat unix.Stat_t
		if unix.Lstat(path, &stat) != nil || stat.Uid != 0 || stat.Mode&0o022 != 0 {
			return false
		}
	}
	// Their users have logind signal all processes of a session.
	name := filepath.Base(folder)
	return !strings.HasPrefix(name, "session-") || !strings.HasSuffix(name, ".scope")
}

// groupsBeside finds them in each hierarchy of /proc/PID/cgroup that is mounted below a directory.
func groupsBeside(dir, groups string, trusted func(folder string) bool) (all []Group) {
	for line := range strings.Lines(groups) {
		mount, path, ok := hierarchy(dir, line)
		if _, err := os.Lstat(mount); !ok || err != nil || !filepath.IsAbs(path) || filepath.Clean(path) != path {
			continue // what lies outside of the agent's own view begins with ".."
		}
		own := true
		for path != "/" && !trusted(filepath.Join(mount, path)) {
			path, own = filepath.Dir(path), false
		}
		switch {
		case own && path != "/":
			all = append(all, Group{filepath.Join(mount, path), "."})
		case path != "/":
			all = append(all, Group{filepath.Join(mount, path), beside})
		}
	}
	return all
}

// leaveGroups moves a process in each hierarchy of /proc/PID/cgroup that is mounted below a directory, see cgroups(7).
// Where one hierarchy holds all, the directory is its mount.
func leaveGroups(dir, groups string, pid int) error {
	var faults []error
	moved := 0
	for line := range strings.Lines(groups) {
		mount, _, ok := hierarchy(dir, line)
		if !ok {
			continue
		}
		err := enterGroup(mount, pid)
		switch {
		case err == nil:
			moved++
		case !errors.Is(err, fs.ErrNotExist): // hierarchies need not be mounted
			faults = append(faults, err)
		}
	}
	if moved == 0 && len(faults) == 0 {
		return fmt.Errorf("%s has none of them", dir)
	}
	return errors.Join(faults...)
}

// hierarchy is where that of a line of /proc/PID/cgroup is mounted, and the process's cgroup in it.
func hierarchy(dir, line string) (mount, path string, ok bool) {
	fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
	if len(fields) < 3 {
		return "", "", false
	}
	mount = filepath.Join(dir, strings.TrimPrefix(fields[1], "name="))
	if fields[1] == "" { // version 2: alone, or beside hierarchies of version 1
		if _, err := os.Stat(filepath.Join(mount, "cgroup.procs")); err != nil {
			mount = filepath.Join(dir, "unified")
		}
	}
	return mount, fields[2], true
}

// enterGroup moves a process to the cgroup of a directory. A cgroup of version 2 that gives controllers to its children
// takes no process unless it is the machine's outermost one; a child of it does.
func enterGroup(dir string, pid int) error {
	err := writePID(dir, pid)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	child := filepath.Join(dir, apart)
	if err := os.Mkdir(child, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make a cgroup: %w", err)
	}
	return writePID(child, pid)
}

func writePID(dir string, pid int) error {
	file, err := os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY, 0) // which is never created
	if err != nil {
		return fmt.Errorf("enter a cgroup: %w", err)
	}
	_, err = file.WriteString(strconv.Itoa(pid))
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("enter a cgroup: %w", err)
	}
	return nil
}
