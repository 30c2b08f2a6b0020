package dist

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/test/multiuser"
)

// users are those of a machine beside root.
var users = []string{"ada", "ben", "cleo", "dan", "eva", "finn"}

// machine is a machine with systemd, on which nothing of Divvy's is installed at first.
type machine struct {
	t   *testing.T
	pid int // of its first process
}

// missing says why this machine cannot make one.
func missing() error {
	if os.Getuid() != 0 {
		return errors.New("only root makes namespaces with an overlay as root")
	}
	for _, program := range []string{"/lib/systemd/systemd", "dpkg", "dpkg-deb", "unshare", "nsenter", "setpriv"} {
		if _, err := exec.LookPath(program); err != nil {
			return err
		}
	}
	_, err := cgroups()
	return err
}

// cgroups is where version 2 of control groups is mounted.
func cgroups() (string, error) {
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(dir, "cgroup.controllers")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("version 2 of control groups is not mounted")
}

// newMachine starts a machine that ends with the test. It has the folder of the release as /release.
func newMachine(t *testing.T, release string) *machine {
	t.Helper()
	group := makeGroup(t)
	// The shell enters the group, so that the namespace of groups begins there.
	const enter = `echo $$ > "$1/cgroup.procs" && shift && exec unshare --mount --pid --uts --ipc --net --cgroup --fork --kill-child --propagation private "$@"`
	cmd := exec.Command("sh", "-c", enter, "enter", group, "./machine.sh", release, t.TempDir(), "systemd-journald.socket")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	// The machine ends also if the test is killed. The kernel means the thread that started it.
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // takes all of the machine's processes with it
		_ = cmd.Wait()         // how it ended says nothing
	})
	m := &machine{t: t}
	m.wait("the machine to start: "+said.String(), func() bool {
		var err error
		if m.pid, err = multiuser.Child(cmd); err != nil {
			return false
		}
		out, _ := m.command("root", "systemctl is-system-running").Output()
		return strings.HasPrefix(string(out), "running") || strings.HasPrefix(string(out), "degraded")
	})
	return m
}

// makeGroup makes a control group that is removed with all below it when the test ends.
func makeGroup(t *testing.T) string {
	t.Helper()
	above, err := cgroups()
	if err != nil {
		t.Fatal(err)
	}
	group := filepath.Join(above, fmt.Sprintf("divvy-dist-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		deadline := time.Now().Add(time.Minute)
		for exec.Command("find", group, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";").Run() != nil || exists(group) {
			if time.Now().After(deadline) {
				t.Errorf("%s stays: a process of the machine is left", group)
				return
			}
		}
	})
	return group
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// command is a shell script that a user runs on the machine, in their home folder.
func (m *machine) command(user, script string) *exec.Cmd {
	args := []string{"--target", strconv.Itoa(m.pid), "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--"}
	home := "/root"
	if user != "root" {
		home = "/home/" + user
		args = append(args, "setpriv", "--reuid", user, "--regid", user, "--init-groups", "--")
	}
	args = append(args, "env", "-i", "-C", home, "HOME="+home, "USER="+user, "DEBIAN_FRONTEND=noninteractive",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "sh", "-c", script)
	return exec.CommandContext(context.Background(), "nsenter", args...)
}

// ok runs a script that must succeed, and returns what it said.
func (m *machine) ok(user, script string) string {
	m.t.Helper()
	out, err := m.command(user, script).CombinedOutput()
	if err != nil {
		m.t.Fatalf("%s: %s: %v\n%s", user, script, err, out)
	}
	return string(out)
}

// fails runs a script that must fail, and returns what it said.
func (m *machine) fails(user, script string) string {
	m.t.Helper()
	out, err := m.command(user, script).CombinedOutput()
	if err == nil {
		m.t.Fatalf("%s: %s: succeeded\n%s", user, script, out)
	}
	return string(out)
}

// wait waits for a condition.
func (m *machine) wait(what string, reached func() bool) {
	m.t.Helper()
	deadline := time.After(3 * time.Minute)
	for !reached() {
		select {
		case <-deadline:
			m.t.Fatalf("waited in vain for %s", what)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
