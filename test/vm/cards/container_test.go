package cards

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/edits/cdi"
	"github.com/divvy-gpu/divvy/internal/rdma"
)

// groups is where cgroups of the second version are, and pods is below what those of pods are.
const (
	groups = "/sys/fs/cgroup"
	pods   = groups + "/kubepods/burstable"
)

// podUID is a pod's, by the name that a test calls it by.
func podUID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("pod%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// given is what a container runtime reads of parts of cards: the specification that the agent writes.
func given(t *testing.T, host *rdma.Host, parts []rdma.Part, each rdma.Limits) specs.ContainerEdits {
	t.Helper()
	access, err := host.Access(parts, each, cover)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := cdi.Spec(v1alpha1.CDINICKind, map[string]edits.Edits{"one": access.Edits})
	if err != nil {
		t.Fatal(err)
	}
	return spec.Devices[0].ContainerEdits
}

// container is a process as a runtime makes one: with a cgroup of its own, its own /dev/infiniband, and no right to make nodes.
type container struct {
	t       *testing.T
	id      string
	pod     string // the folder of its cgroup
	cmd     *exec.Cmd
	to      io.WriteCloser
	answers *bufio.Scanner
}

// start makes a container in a pod of its own.
func start(t *testing.T, id string, spec specs.ContainerEdits) *container {
	t.Helper()
	return startIn(t, filepath.Join(pods, podUID(id)), id, spec)
}

// startIn makes a container as a runtime does: its process and cgroup, the hooks, and then what the specification gives it.
func startIn(t *testing.T, pod, id string, spec specs.ContainerEdits) *container {
	t.Helper()
	c := enterIn(t, pod, id)
	if len(spec.Hooks) > 0 {
		if text, err := hook(spec, c.state()); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	for _, d := range spec.DeviceNodes {
		if answer := c.ask("give", d.Path, fmt.Sprint(d.Major), fmt.Sprint(d.Minor)); answer != "yes" {
			t.Fatalf("%s: %s", d.Path, answer)
		}
	}
	if answer := c.ask("drop"); answer != "yes" {
		t.Fatal(answer)
	}
	return c
}

// enterIn starts the container's process in a cgroup that is called by its id, in that of its pod.
func enterIn(t *testing.T, pod, id string) *container {
	t.Helper()
	cgroup := filepath.Join(pod, id)
	if err := os.MkdirAll(cgroup, 0o755); err != nil {
		t.Fatal(err)
	}
	folder, err := os.Open(cgroup)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	c := &container{t: t, id: id, pod: pod, cmd: exec.Command("/proc/self/exe")} //nolint:noctx // it ends with the test
	c.cmd.Env = append(os.Environ(), inContainer+"=1")
	c.cmd.Stderr = os.Stderr
	first := !strings.HasPrefix(pod, groups)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, UseCgroupFD: !first, CgroupFD: int(folder.Fd()), Pdeathsig: unix.SIGKILL}
	if c.to, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	from, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.answers = bufio.NewScanner(from)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.end)
	if first {
		if err := os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte(strconv.Itoa(c.cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// state is what a runtime tells hooks.
func (c *container) state() string {
	return fmt.Sprintf(`{"ociVersion": "1.2.0", "id": %q, "status": "creating", "pid": %d, "bundle": "/"}`, c.id, c.cmd.Process.Pid)
}

// hook runs the hooks of a specification as a runtime does, and returns what they say.
func hook(spec specs.ContainerEdits, state string) (string, error) {
	if len(spec.Hooks) != 1 || spec.Hooks[0].HookName != "createRuntime" {
		return "", fmt.Errorf("the hooks are %+v", spec.Hooks)
	}
	cmd := exec.Command(spec.Hooks[0].Path) //nolint:noctx // it ends in a moment
	cmd.Args = spec.Hooks[0].Args
	cmd.Stdin = strings.NewReader(state)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// ask has the container do something, and returns its answer of one line.
func (c *container) ask(words ...string) string {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.to, strings.Join(words, " ")); err != nil {
		c.t.Fatalf("ask container %s: %v", c.id, err)
	}
	if !c.answers.Scan() {
		c.t.Fatalf("container %s does not answer to %q: %v", c.id, words, c.answers.Err())
	}
	return c.answers.Text()
}

func (c *container) number(words ...string) int {
	c.t.Helper()
	answer := c.ask(words...)
	n, err := strconv.Atoi(answer)
	if err != nil {
		c.t.Fatalf("container %s answers to %q: %s", c.id, words, answer)
	}
	return n
}

// end ends the container, after which nobody has an adapter open, and takes its cgroup away, and with the last one its pod's.
func (c *container) end() {
	if c.cmd == nil {
		return
	}
	_ = c.to.Close()
	err := c.cmd.Wait()
	c.cmd = nil
	cgroup := filepath.Join(c.pod, c.id)
	if err = errors.Join(err, unlimit(cgroup), os.Remove(cgroup)); err != nil {
		c.t.Errorf("end container %s: %v", c.id, err)
	}
	if others, _ := filepath.Glob(filepath.Join(c.pod, "*", "cgroup.procs")); len(others) > 0 {
		return
	}
	if err := errors.Join(unlimit(c.pod), os.Remove(c.pod)); err != nil {
		c.t.Errorf("end the pod of container %s: %v", c.id, err)
	}
}

// unlimit takes the limits of a cgroup away. When one goes that has a limit for an adapter and no use of it, the kernel leaves the
// limit with the adapter, and reads freed memory once the adapter goes (free_cg_rpool_locked of kernel/cgroup/rdma.c).
func unlimit(cgroup string) error {
	file := filepath.Join(cgroup, "rdma.max")
	text, err := os.ReadFile(file) //nolint:gosec // of the guest
	if errors.Is(err, os.ErrNotExist) {
		return nil // the controller was not handed down
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); err == nil && len(fields) > 0 {
			err = os.WriteFile(file, []byte(fields[0]+" hca_handle=max hca_object=max"), 0o600)
		}
	}
	return err
}

func contains(text, part string) bool { return strings.Contains(text, part) }
