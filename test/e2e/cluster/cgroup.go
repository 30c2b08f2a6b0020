package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	version1 := false
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
		version1 = version1 || strings.Contains(options, "memory")
		found = append(found, hierarchy{Mount: place[4], Options: options, Own: group})
	}
	if !version1 {
		return nil, errors.New("find cgroups: the memory controller has no version 1 hierarchy here: " +
			"boot with systemd.unified_cgroup_hierarchy=0, or run the tests in a machine that has one")
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

// makeGroup creates a cgroup in every hierarchy. A new cpuset takes no process
// before it has processors and memory.
func makeGroup(all []hierarchy, name string) error {
	for _, h := range all {
		dir := h.dir(name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("create cgroup: %w", err)
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

// joinGroup moves the calling process, or with "tasks" the calling thread, into
// a cgroup of every hierarchy. Version 2 moves whole processes alone, and a
// process in its root is as good there: no limit is set in it.
func joinGroup(all []hierarchy, name, file string) error {
	for _, h := range all {
		if h.Options == "" && file == "tasks" {
			continue
		}
		if err := os.WriteFile(filepath.Join(h.dir(name), file), []byte("0"), 0o644); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	return nil
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
