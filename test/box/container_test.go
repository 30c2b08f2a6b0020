package box

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/edits/cdi"
)

// container is a container that runc runs.
type container struct {
	t      *testing.T
	id     string
	root   string // the root file system
	bundle string
	state  string
	spec   *oci.Spec
}

// newContainer makes a container with the edits and, as in a cluster, its own
// namespaces and few capabilities. The test removes it when it ends.
func (h *host) newContainer(t *testing.T, e edits.Edits) *container {
	t.Helper()
	c := &container{
		t: t, bundle: t.TempDir(), state: filepath.Join(h.rundir, "runc"),
		root: image(t, filepath.Join(string(h.tree), "bin", "gpubench"), h.look),
	}
	c.id = "divvy-box-" + strconv.Itoa(os.Getpid()) + "-" + filepath.Base(filepath.Dir(c.bundle)) + filepath.Base(c.bundle)
	rights := []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_SETUID", "CAP_SETGID", "CAP_KILL"}
	c.spec = &oci.Spec{
		Version: "1.0.2",
		Root:    &oci.Root{Path: c.root},
		Process: &oci.Process{
			Cwd: "/", NoNewPrivileges: true, Env: []string{"PATH=/usr/bin"},
			Capabilities: &oci.LinuxCapabilities{Bounding: rights, Effective: rights, Permitted: rights},
		},
		Mounts: []oci.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755"}},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev"}},
		},
		Linux: &oci.Linux{
			CgroupsPath: "/" + c.id,
			Namespaces: []oci.LinuxNamespace{
				{Type: oci.PIDNamespace}, {Type: oci.MountNamespace}, {Type: oci.NetworkNamespace}, {Type: oci.IPCNamespace}, {Type: oci.UTSNamespace},
			},
		},
	}
	specification, err := cdi.Spec(v1alpha1.CDIKind, map[string]edits.Edits{"it": e})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := cdi.Write(dir, "divvy.dev-it", specification); err != nil {
		t.Fatal(err)
	}
	cache, err := cdiapi.NewCache(cdiapi.WithSpecDirs(dir), cdiapi.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cache.InjectDevices(c.spec, v1alpha1.CDIKind+"=it"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.remove)
	return c
}

// inUserNamespace gives the container a user namespace, as pods with hostUsers:
// false have, and makes its root the owner of the image.
func (c *container) inUserNamespace() {
	c.t.Helper()
	const first = 100000
	mapping := []oci.LinuxIDMapping{{ContainerID: 0, HostID: first, Size: 65536}}
	c.spec.Linux.Namespaces = append(c.spec.Linux.Namespaces, oci.LinuxNamespace{Type: oci.UserNamespace})
	c.spec.Linux.UIDMappings, c.spec.Linux.GIDMappings = mapping, mapping
	err := filepath.WalkDir(c.root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, first, first)
	})
	if err != nil {
		c.t.Fatal(err)
	}
	// runc enters the folders above the image as that user, so they must allow it; only the test's own are changed.
	for dir := c.root; dir != filepath.Clean(os.TempDir()) && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *container) runc(args ...string) *exec.Cmd {
	return exec.Command("runc", append([]string{"--root", c.state}, args...)...)
}

func (c *container) remove() {
	_ = c.runc("delete", "--force", c.id).Run() // it is gone already where it ended
}

// start begins the program in the container.
func (c *container) start(args ...string) *exec.Cmd {
	c.t.Helper()
	c.spec.Process.Args = args
	text, err := json.Marshal(c.spec)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.bundle, "config.json"), text, 0o644); err != nil {
		c.t.Fatal(err)
	}
	return c.runc("run", "--bundle", c.bundle, c.id)
}

// output runs the program to its end and returns what it printed.
func (c *container) output(args ...string) string {
	c.t.Helper()
	out, err := c.start(args...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		c.t.Errorf("%s: %v", strings.Join(args, " "), err)
	}
	return text
}

// running is a program in a container that ends with its input.
type running struct {
	*container
	cmd    *exec.Cmd
	input  io.WriteCloser
	output io.Reader
	said   *bytes.Buffer // its standard error; to be read after its end
	first  string
}

// hold begins a program and returns when it has printed its first line.
func (c *container) hold(args ...string) *running {
	c.t.Helper()
	r := c.begin(args...)
	line, err := bufio.NewReader(r.output).ReadString('\n')
	if err != nil {
		_ = r.cmd.Wait()
		c.t.Fatalf("%s ended: %s", strings.Join(args, " "), r.said.String())
	}
	r.first = strings.TrimSpace(line)
	return r
}

// begin starts a program.
func (c *container) begin(args ...string) *running {
	c.t.Helper()
	cmd := c.start(args...)
	input, err := cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	r := &running{container: c, cmd: cmd, input: input, output: output, said: &bytes.Buffer{}}
	cmd.Stderr = r.said
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(r.end)
	return r
}

// init returns the host's pid of the container's first process.
func (r *running) init() int {
	r.t.Helper()
	out, err := r.runc("state", r.id).Output()
	if err != nil {
		r.t.Fatal(err)
	}
	var state oci.State
	if err := json.Unmarshal(out, &state); err != nil {
		r.t.Fatal(err)
	}
	return state.Pid
}

// end closes the program's input and waits until it has ended; a second call does nothing.
func (r *running) end() {
	_ = r.input.Close()
	_ = r.cmd.Wait()
}
