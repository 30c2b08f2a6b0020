package containers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/agenttest"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/docs/session"
	"github.com/divvy-gpu/divvy/test/multiuser"
)

// longest bounds every command, on a busy machine.
const longest = 5 * time.Minute

// machine is a server with programs of a page and an agent of a simulated machine.
type machine struct {
	*multiuser.Server
	t *testing.T
}

// unpacked is where the programs of hack/NAME.sh are unpacked.
func unpacked(t *testing.T, name string) string {
	t.Helper()
	folder := filepath.Join(installtest.Root(t), ".cache", name)
	if _, err := os.Stat(filepath.Join(folder, ".complete")); err != nil {
		installtest.Missing(t, name, fmt.Errorf("%w: `hack/%s.sh .cache/%[2]s` unpacks it", err, name))
	}
	folder, err := filepath.EvalSymlinks(folder)
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// open makes a server on which nothing runs, for a test that needs programs of a name.
func open(t *testing.T, name string) *machine {
	t.Helper()
	if os.Getuid() != 0 {
		installtest.Missing(t, name, errors.New("only root makes namespaces for it"))
	}
	server, err := multiuser.Open(string(installtest.Tree(t)))
	if err != nil {
		installtest.Missing(t, name, err)
	}
	t.Cleanup(server.Close)
	return &machine{server, t}
}

// start runs a script of this folder.
func (m *machine) start(script string, args ...string) {
	m.t.Helper()
	text, err := os.ReadFile(script)
	if err != nil {
		m.t.Fatal(err)
	}
	if out, err := m.sh(string(text), args...); err != nil {
		m.t.Fatalf("%s: %v: %s", script, err, out)
	}
}

// cgroup is that of the machine's containers. It is removed when the machine has ended.
func cgroup(t *testing.T) string {
	t.Helper()
	cgroup := fmt.Sprintf("/divvy-containers-%d", os.Getpid())
	t.Cleanup(func() { removeCgroups(cgroup) })
	return cgroup
}

// newMachine is a machine with podman, Docker, Open MPI and Jupyter.
func newMachine(t *testing.T) *machine {
	t.Helper()
	podman, mpi, jupyter, containers := unpacked(t, "podman"), unpacked(t, "mpi"), unpacked(t, "jupyter"), cgroup(t)
	docker := unpacked(t, "docker")
	m := open(t, "podman")
	m.start("image.sh")
	m.start("setup.sh", podman, containers, mpi, jupyter)
	m.start("docker.sh", docker+"/26", docker+"/20", containers, `{"features": {"cdi": true}}`)
	if err := m.Write(kernels+"gpu-8gi/kernel.json", kernelOfPage(t)); err != nil {
		t.Fatal(err)
	}
	m.serve()
	return m
}

// serve starts the agent.
func (m *machine) serve() {
	t := m.t
	t.Helper()
	agent := m.Command(context.WithoutCancel(t.Context()), "root", "divvy", "agent", "--simgpu", "a800x8")
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	agenttest.Eventually(t, "the agent serves", func() bool {
		client, err := control.Dial(t.Context(), m.Socket())
		return err == nil && client.Close() == nil
	})
}

// sh runs a script as root, and returns what it printed.
func (m *machine) sh(script string, args ...string) (string, error) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), longest)
	defer cancel()
	cmd := m.Command(ctx, "root", append([]string{"env", "PATH=/opt/tools:/opt/divvy/bin:/usr/sbin:/usr/bin:/sbin:/bin", "sh", "-c", script, "sh"}, args...)...)
	cmd.WaitDelay = time.Second // containers that go on keep its output
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// removeCgroups removes those of containers that have ended. The first process of the machine's namespaces has ended, and
// all others with it.
func removeCgroups(cgroup string) {
	for _, pattern := range []string{"/sys/fs/cgroup" + cgroup + "/*", "/sys/fs/cgroup" + cgroup, "/sys/fs/cgroup/*" + cgroup + "/*", "/sys/fs/cgroup/*" + cgroup} {
		found, _ := filepath.Glob(pattern)
		for _, dir := range found {
			_ = os.Remove(dir) // files cannot be removed and need not be
		}
	}
}

// The examples of the page print what the page says.
func TestPageOfContainers(t *testing.T) {
	all, book, err := session.Page(installtest.Root(t), "docs/containers.md", "test/containers.TestPageOfContainers")
	if err != nil || len(all) < 6 {
		t.Fatalf("the page has %d commands: %v", len(all), err)
	}
	m := newMachine(t)
	for _, c := range all {
		if out, err := m.sh(c.Text); !book.Prints(c, out) {
			t.Errorf("%v\nprints\n%s(%v), and the page has\n%s", c, out, err, c.Output)
		}
	}
}
