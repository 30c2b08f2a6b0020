package daemon

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/agenttest"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// The system's agent serves other users, who can write their state page and
// nothing else of what it makes for them.
func TestSystemAgentServesOtherUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can serve other users")
	}
	tree := installtest.Tree(t)
	divvy := filepath.Join(string(tree), "bin", "divvy")
	dir, err := os.MkdirTemp("/dev/shm", "divvy-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv(rundir.Variable, dir)
	t.Setenv(install.Variable, string(tree))
	instance := openMachine(t, simgpu.NewStore(dir, tree), dir)
	asNobody := func(args ...string) (string, error) {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: process.Nobody, Gid: process.Nobody}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := asNobody(divvy, "version"); err != nil {
		t.Skipf("other users cannot run %s: %v %s", divvy, err, out)
	}
	serveSystem(t, divvy, control.Endpoint{Rundir: dir, Simgpu: instance})

	attack := `for f in "$0"/tenants/*/*; do
	if [ ! -h "$f" ] && { true >>"$f"; } 2>/dev/null; then echo "may write ${f##*/}"; fi
	mv "$f" "$f.moved" 2>/dev/null && echo "may move $f"
done
touch "$0"/tenants/*/added 2>/dev/null && echo "may add"
exec "$1" alloc --bytes 256Mi --count 9`
	out, err := asNobody(divvy, "run", "--simgpu", "m", "--memory", "2Gi", "--layer", "env", "--", "sh", "-c", attack, dir, filepath.Join(string(tree), "bin", "gpubench"))
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 || lines[0] != "may write state" || !strings.Contains(lines[1], `"CUDA_ERROR_OUT_OF_MEMORY"`) {
		t.Errorf("inside the share: %v, %s", err, out)
	}
	eventually(t, "the tenant ends", func() bool {
		left, err := os.ReadDir(filepath.Join(dir, "tenants"))
		return err == nil && len(left) == 0
	})
}

// openMachine starts a simulated machine that every user may use.
func openMachine(t *testing.T, store simgpu.Store, dir string) string {
	t.Helper()
	machine, err := simgpu.Load("a100-80g")
	if err != nil {
		t.Fatal(err)
	}
	instance, err := store.Start(t.Context(), "m", machine, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Join(dir, "simgpu"), instance.Dir} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	files, err := os.ReadDir(instance.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if file.Type().IsRegular() { // links lead to what everybody may read
			if err := os.Chmod(filepath.Join(instance.Dir, file.Name()), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	return instance.Dir
}

// serveSystem runs the system's agent until the test ends.
func serveSystem(t *testing.T, divvy string, endpoint control.Endpoint) {
	t.Helper()
	cmd := exec.Command(divvy, "agent", "--simgpu-dir", endpoint.Simgpu)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if <-ended; t.Failed() {
			t.Log(said.String())
		}
	})
	eventually(t, "the agent serves", func() bool {
		client, err := control.Dial(t.Context(), endpoint.Socket())
		return err == nil && client.Close() == nil
	})
}

var eventually = agenttest.Eventually
