package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// leaveGroups moves a process in each hierarchy of /proc/PID/cgroup that is mounted below a directory, see cgroups(7).
// Where one hierarchy holds all, the directory is its mount.
func leaveGroups(dir, groups string, pid int) error {
	var faults []error
	moved := 0
	for line := range strings.Lines(groups) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		mount := filepath.Join(dir, strings.TrimPrefix(fields[1], "name="))
		if fields[1] == "" { // version 2: alone, or beside hierarchies of version 1
			if _, err := os.Stat(filepath.Join(mount, "cgroup.procs")); err != nil {
				mount = filepath.Join(dir, "unified")
			}
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
