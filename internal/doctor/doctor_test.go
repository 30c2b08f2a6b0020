package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/rundir"

	"github.com/divvy-gpu/divvy/internal/install"
)

// machine is a Host on a directory of its own with the given files.
func machine(t *testing.T, files map[string]string) Host {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Host{Root: root, Tree: install.Tree(root), Rundir: filepath.Join(root, "run")}
}

func want(t *testing.T, c Check, status Status, found, next string) {
	t.Helper()
	if c.Status != status || !strings.Contains(c.Found, found) || !strings.Contains(c.Next, next) {
		t.Errorf("got %+v, want %s, found %q, next %q", c, status, found, next)
	}
	if c.Status == OK && c.Next != "" {
		t.Errorf("%s is well and yet something is to be done: %s", c.Name, c.Next)
	}
}

func TestBareMachine(t *testing.T) {
	h := machine(t, nil)
	want(t, h.installation(), Fail, "divvy-enter", "DIVVY_PREFIX")
	want(t, h.driver()[0], Fail, "no NVIDIA driver", "--simgpu")
	want(t, h.namespaces(t.Context()), Warn, "divvy-enter", "--layer env")
	want(t, h.sharedMemory(), Fail, "/dev/shm", "tmpfs")
	want(t, runDirectory(h.Rundir), OK, "made when needed", "")
	want(t, h.system(), OK, "a system agent makes it", "")
}

// Who has no GPU here and may use one elsewhere is told how.
func TestElsewhere(t *testing.T) {
	h := machine(t, nil)
	h.Elsewhere = []string{"gpu1", "gpu2"}
	want(t, h.driver()[0], Fail, "no NVIDIA driver", "`divvy run --remote gpu1 -- COMMAND`, or --on in place")
	want(t, h.devices(), Fail, "no /dev/nvidia0", "without a GPU use a GPU of another host (`divvy run --remote gpu1")
}

func TestDevicesMustBeThere(t *testing.T) {
	whole := map[string]string{"dev/nvidia0": "", "dev/nvidia1": "", "dev/nvidiactl": "", "dev/nvidia-uvm": ""}
	want(t, machine(t, whole).devices(), OK, "2 GPUs", "")
	delete(whole, "dev/nvidia-uvm")
	want(t, machine(t, whole).devices(), Fail, "nvidia-uvm", "nvidia-modprobe")
	want(t, machine(t, nil).devices(), Fail, "/dev/nvidia0", "--gpus all")
}

func TestNamespaceAdviceNamesTheSetting(t *testing.T) {
	for setting, value := range map[string]string{
		"kernel/apparmor_restrict_unprivileged_userns": "1",
		"kernel/unprivileged_userns_clone":             "0",
		"user/max_user_namespaces":                     "0",
	} {
		h := machine(t, map[string]string{"proc/sys/" + setting: value + "\n"})
		if got := h.namespaceAdvice(); !strings.Contains(got, strings.ReplaceAll(setting, "/", ".")) {
			t.Errorf("%s = %s: %s", setting, value, got)
		}
	}
}

func TestRundirOfSomebodyElse(t *testing.T) {
	h := machine(t, map[string]string{"run": ""})
	want(t, runDirectory(h.Rundir), Fail, "not a directory", "")
	h = machine(t, nil)
	if err := os.Mkdir(h.Rundir, 0o700); err != nil {
		t.Fatal(err)
	}
	want(t, runDirectory(h.Rundir), OK, h.Rundir, "")
	if err := os.Chmod(h.Rundir, 0o777); err != nil {
		t.Fatal(err)
	}
	want(t, runDirectory(h.Rundir), Fail, "chmod go-w", "")
	if os.Getuid() != 0 {
		return
	}
	if err := errors.Join(os.Chmod(h.Rundir, 0o700), os.Chown(h.Rundir, 4321, 4321)); err != nil {
		t.Fatal(err)
	}
	want(t, runDirectory(h.Rundir), Fail, "belongs to user 4321: remove it", "")
}

// Whatever keeps users from the system agent is found, by root and by them.
func TestSystemRundir(t *testing.T) {
	h := machine(t, nil)
	dir := filepath.Join(h.Root, rundir.System)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		want(t, h.system(), Fail, "belongs to user", "remove it")
		return
	}
	want(t, h.system(), OK, dir, "")
	for _, c := range []struct {
		spoil       func() error
		status      Status
		found, next string
	}{
		{func() error { return os.Chmod(dir, 0o700) }, Warn, "closed to users", "chmod 755"},
		{func() error { return os.Chmod(dir, 0o777) }, Fail, "others can write", "chmod go-w"},
		{func() error { return os.Chown(dir, 4321, -1) }, Fail, "belongs to user 4321", "remove it"},
		{func() error { return errors.Join(os.Remove(dir), os.Symlink("/tmp", dir)) }, Fail, "not a directory", "remove it"},
	} {
		if err := c.spoil(); err != nil {
			t.Fatal(err)
		}
		want(t, h.system(), c.status, c.found, c.next)
	}
}
