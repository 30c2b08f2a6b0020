package containers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/agenttest"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/multiuser"
)

// longest bounds every command, on a busy machine.
const longest = 5 * time.Minute

// machine is a server with podman and an agent of a simulated machine.
type machine struct {
	*multiuser.Server
	t *testing.T
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	podman := filepath.Join(installtest.Root(t), ".cache", "podman")
	if _, err := os.Stat(filepath.Join(podman, ".complete")); err != nil {
		installtest.Missing(t, "podman", fmt.Errorf("%w: `hack/podman.sh .cache/podman` unpacks it", err))
	}
	if os.Getuid() != 0 {
		installtest.Missing(t, "podman", errors.New("only root makes namespaces for it"))
	}
	podman, err := filepath.EvalSymlinks(podman)
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("setup.sh")
	if err != nil {
		t.Fatal(err)
	}
	server, err := multiuser.Open(string(installtest.Tree(t)))
	if err != nil {
		installtest.Missing(t, "podman", err)
	}
	t.Cleanup(server.Close)
	m := &machine{server, t}
	cgroup := fmt.Sprintf("/divvy-containers-%d", os.Getpid())
	t.Cleanup(func() { removeCgroups(cgroup) })
	if text, err := m.sh(string(script), filepath.Join(podman, "debian"), cgroup); err != nil {
		t.Fatalf("make podman ready: %v: %s", err, text)
	}
	agent := m.Command(context.WithoutCancel(t.Context()), "root", "divvy", "agent", "--simgpu", "a800x8")
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	agenttest.Eventually(t, "the agent serves", func() bool {
		client, err := control.Dial(t.Context(), m.Socket())
		return err == nil && client.Close() == nil
	})
	return m
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
	text, err := os.ReadFile(filepath.Join(installtest.Root(t), "docs", "containers.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := examples(string(text))
	if len(all) < 6 {
		t.Fatalf("the page has %d examples", len(all))
	}
	m := newMachine(t)
	for _, e := range all {
		if out, err := m.sh(e.command); !e.prints(out) {
			t.Errorf("# %s\nprints\n%s(%v), and the page has\n%s", e.command, out, err, e.output)
		}
	}
}

// The page's Jupyter kernel is one, and what it starts has its memory.
func TestJupyterKernel(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(installtest.Root(t), "docs", "containers.md"))
	if err != nil {
		t.Fatal(err)
	}
	begin, end := strings.Index(string(text), "    {\n      \"display_name\""), strings.Index(string(text), "\n    }\n")
	if begin < 0 || end < begin {
		t.Fatal("the page has no kernel")
	}
	var kernel struct {
		Name      string   `json:"display_name"`
		Language  string   `json:"language"`
		Interrupt string   `json:"interrupt_mode"`
		Args      []string `json:"argv"`
	}
	decoder := json.NewDecoder(strings.NewReader(string(text[begin : end+len("\n    }\n")])))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&kernel); err != nil {
		t.Fatal(err)
	}
	at := slices.Index(kernel.Args, "--")
	if at < 0 || !slices.Contains(kernel.Args, "{connection_file}") || kernel.Interrupt != "signal" {
		t.Fatalf("the kernel is %+v", kernel)
	}
	machine := []string{"--simgpu", "a100-80g"} // which stands for the GPU of the user's machine
	args := slices.Concat(kernel.Args[1:2], machine, kernel.Args[2:at+1], []string{"gpubench", "info"})
	tree := installtest.Tree(t)
	cmd := exec.Command(filepath.Join(string(tree), "bin", kernel.Args[0]), args...)
	rundir := t.TempDir()
	cmd.Env = append(os.Environ(), "DIVVY_RUNDIR="+rundir, "PATH="+filepath.Join(string(tree), "bin")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"total_bytes":8589934592`) {
		t.Errorf("it prints %s(%v)", out, err)
	}
	stop := exec.Command(cmd.Path, "simgpu", "stop", "a100-80g", "--force")
	stop.Env = cmd.Env
	if out, err := stop.CombinedOutput(); err != nil {
		t.Errorf("stop the machine: %v: %s", err, out)
	}
}

func TestExamples(t *testing.T) {
	got := examples("text\n\n    # a b\n    1\n    2 …\n    # c\n\n    not run\n# Heading\n\n    # d\n    3\n")
	if len(got) != 3 || got[0] != (example{"a b", "1\n2 …\n"}) || got[1].output != "" || got[2] != (example{"d", "3\n"}) {
		t.Errorf("found %q", got)
	}
	for output, want := range map[string]bool{"1\n2 and more\n": true, "1\n2 \nmore": false, "1": false, "01\n2 x": false} {
		if got[0].prints(output) != want {
			t.Errorf("%q: %v, want %v", output, !want, want)
		}
	}
	if strings.Contains(got[0].command, "#") {
		t.Error("a prompt is part of a command")
	}
}
