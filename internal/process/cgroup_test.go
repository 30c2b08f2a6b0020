package process

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// hierarchies makes directories with a file cgroup.procs each, as mounted hierarchies have.
func hierarchies(t *testing.T, names ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range names {
		mount := filepath.Join(dir, name)
		if err := os.MkdirAll(mount, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(mount, "cgroup.procs"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// entered are the hierarchies in which a process was moved to the outermost cgroup.
func entered(t *testing.T, dir string, names ...string) (all []string) {
	t.Helper()
	for _, name := range names {
		if text, err := os.ReadFile(filepath.Join(dir, name, "cgroup.procs")); err == nil && string(text) == "77" {
			all = append(all, name)
		}
	}
	return all
}

func TestLeaveGroups(t *testing.T) {
	const (
		one  = "0::/kubepods/pod1/abc\n"
		both = "13:name=systemd:/pod\n5:cpu,cpuacct:/pod\n4:devices:/pod\n2:rdma:/pod\n0::/pod\n"
	)
	for name, c := range map[string]struct {
		groups string
		mounts []string
		want   string
	}{
		"version 2 alone":          {one, []string{"."}, "."},
		"version 1":                {both, []string{"systemd", "cpu,cpuacct", "devices"}, "systemd cpu,cpuacct devices"},
		"version 2 beside it":      {both, []string{"systemd", "cpu,cpuacct", "devices", "unified"}, "systemd cpu,cpuacct devices unified"},
		"others are left as found": {one, []string{".", "devices"}, "."},
	} {
		dir := hierarchies(t, c.mounts...)
		if err := leaveGroups(dir, c.groups, 77); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := strings.Join(entered(t, dir, c.mounts...), " "); got != c.want {
			t.Errorf("%s: moved in %q, want %q", name, got, c.want)
		}
	}
	if err := leaveGroups(t.TempDir(), both, 77); err == nil || !strings.Contains(err.Error(), "has none of them") {
		t.Errorf("nothing is mounted: %v", err)
	}
}

func TestLeaveGroupsOfTheDead(t *testing.T) {
	if err := (ID{PID: 1 << 22, Start: 1}).LeaveGroups(t.TempDir()); err == nil {
		t.Error("a process that is not there was moved")
	}
}

func TestGroupsBeside(t *testing.T) {
	dir := hierarchies(t, ".", "memory", "systemd")
	const (
		session = "user.slice/user-7.slice/session-3.scope"
		manager = "user.slice/user-7.slice/user@7.service"
		job     = "system.slice/slurmstepd.scope/job_1"
	)
	trusted := func(folder string) bool {
		return !strings.Contains(folder, "session-") && !strings.Contains(folder, "user@")
	}
	slice := filepath.Join(dir, "user.slice/user-7.slice")
	for groups, want := range map[string][]Group{
		"0::/" + job + "\n":                 {{filepath.Join(dir, job), "."}},
		"0::/" + session + "\n":             {{slice, "divvy-workers"}},
		"0::/" + manager + "/app/x.scope\n": {{slice, "divvy-workers"}},
		"0::/../../elsewhere\n":             nil,
		"0::/\n":                            nil,
		"0::/user@7.service/x\n":            nil, // nothing above is root's but the outermost, which may take no process
		"3:cpuset:/x\n2:memory:/" + job + "\n1:name=systemd:/" + session + "\n": {
			{filepath.Join(dir, "memory", job), "."}, {filepath.Join(dir, "systemd/user.slice/user-7.slice"), "divvy-workers"},
		},
	} {
		if got := groupsBeside(dir, groups, trusted); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", groups, got, want)
		}
	}
}

// A cgroup that a user could enter or kill as a whole is not root's, nor is a session.
func TestGroupOfRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root makes files of root's")
	}
	dir := hierarchies(t, "whole", "theirs", "procs", "session-3.scope")
	if err := errors.Join(os.Chown(filepath.Join(dir, "theirs"), 7, 7), os.Chown(filepath.Join(dir, "procs/cgroup.procs"), 7, 7)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"whole": true, "theirs": false, "procs": false, "session-3.scope": false, "missing": false} {
		if got := ofRoot(filepath.Join(dir, name)); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
