package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// hierarchy is one cgroup file system of the host.
type hierarchy struct {
	Mount   string `json:"mount"`   // where the host has it
	Options string `json:"options"` // mount data that names the same one; empty for version 2
	Own     string `json:"own"`     // this process's cgroup in it, below the mount
}

// hierarchies lists the host's, and where this process is in each.
func hierarchies() ([]hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	return parseHierarchies(string(mounts), string(groups))
}

// parseHierarchies joins the two files by the controllers of each hierarchy.
func parseHierarchies(mountinfo, cgroups string) ([]hierarchy, error) {
	own := make(map[string]string)
	for line := range strings.Lines(cgroups) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 {
			own[parts[1]] = parts[2]
		}
	}
	var found []hierarchy
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		place, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(place) < 5 || len(kind) < 3 || !strings.HasPrefix(kind[0], "cgroup") || place[3] != "/" {
			continue
		}
		options := controllers(kind[2])
		group, ok := own[options]
		if !ok || slices.ContainsFunc(found, func(h hierarchy) bool { return h.Options == options }) {
			continue
		}
		if options == "" {
			// Controllers of version 2 reach only children of cgroups without processes: of the root.
			group = "/"
		}
		found = append(found, hierarchy{Mount: place[4], Options: options, Own: group})
	}
	if len(found) == 0 {
		return nil, errors.New("find cgroups: no cgroup file system is mounted")
	}
	return found, nil
}

// controllers keeps what names a hierarchy among the options of its mount.
func controllers(options string) string {
	var kept []string
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "rw", "ro", "none", "xattr", "nsdelegate", "memory_recursiveprot", "clone_children", "noprefix":
		default:
			if !strings.HasPrefix(option, "release_agent=") {
				kept = append(kept, option)
			}
		}
	}
	return strings.Join(kept, ",")
}

// dir is the directory of a cgroup named below this process's own.
func (h hierarchy) dir(name string) string {
	return filepath.Join(h.Mount, h.Own, name)
}

// version2 is the unified hierarchy.
func (h hierarchy) version2() bool { return h.Options == "" }

// leaf is where the processes of a group are in version 2, which allows none in
// a cgroup whose children have controllers.
const leaf = "init"

// makeGroup creates a cgroup in every hierarchy. A new cpuset takes no process
// before it has processors and memory.
func makeGroup(all []hierarchy, name string) error {
	for _, h := range all {
		dir := h.dir(name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("create cgroup: %w", err)
		}
		if h.version2() {
			if err := delegate(filepath.Dir(dir)); err != nil {
				return fmt.Errorf("create cgroup: %w", err)
			}
		}
		if !slices.Contains(strings.Split(h.Options, ","), "cpuset") {
			continue
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if err := inherit(filepath.Join(dir, file), filepath.Join(filepath.Dir(dir), file)); err != nil {
				return fmt.Errorf("create cgroup: %w", err)
			}
		}
	}
	return nil
}

// delegate gives the children of a cgroup of version 2 the controllers that it
// has itself.
func delegate(dir string) error {
	own, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "cgroup.subtree_control")
	given, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for controller := range strings.FieldsSeq(string(own)) {
		if slices.Contains(strings.Fields(string(given)), controller) {
			continue
		}
		if err := os.WriteFile(file, []byte("+"+controller), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func inherit(file, from string) error {
	if now, err := os.ReadFile(file); err != nil || len(bytes.TrimSpace(now)) > 0 {
		return err
	}
	value, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(file, value, 0o644)
}

// joinGroup moves the calling process into a cgroup of every hierarchy.
func joinGroup(all []hierarchy, name string) error {
	for _, h := range all {
		if err := os.WriteFile(filepath.Join(h.dir(name), "cgroup.procs"), []byte("0"), 0o644); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	return nil
}

// settle moves the calling process to where its cgroup may have children with
// controllers beside it. Its cgroup namespace begins above that.
func settle(all []hierarchy, name string) error {
	for _, h := range all {
		if !h.version2() {
			continue
		}
		dir := h.dir(filepath.Join(name, leaf))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("create cgroup: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
		if err := delegate(h.dir(name)); err != nil {
			return fmt.Errorf("give controllers to cgroups: %w", err)
		}
	}
	return nil
}

// prepareIn makes a command that the calling thread starts begin in a cgroup of
// every hierarchy. In version 1 the thread moves there, and its children with
// it; version 2 moves no single threads, but children can begin elsewhere. The
// files that it returns are to be closed once the command has started.
func prepareIn(all []hierarchy, name string, cmd *exec.Cmd) ([]io.Closer, error) {
	var open []io.Closer
	for _, h := range all {
		if !h.version2() {
			if err := os.WriteFile(filepath.Join(h.dir(name), "tasks"), []byte("0"), 0o644); err != nil {
				return open, fmt.Errorf("enter cgroup: %w", err)
			}
			continue
		}
		dir, err := os.Open(h.dir(filepath.Join(name, leaf)))
		if err != nil {
			return open, fmt.Errorf("enter cgroup: %w", err)
		}
		open = append(open, dir)
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	return open, nil
}

// removeGroup removes a cgroup and all below it, whose processes have ended.
func removeGroup(all []hierarchy, name string) error {
	var faults []error
	for _, h := range all {
		var dirs []string
		err := filepath.WalkDir(h.dir(name), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			faults = append(faults, err)
		}
		for _, dir := range slices.Backward(dirs) {
			if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				faults = append(faults, err)
			}
		}
	}
	return errors.Join(faults...)
}
