package tenantdir

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/edits"
)

// mounting starts a process with a directory mounted where containers have their
// share's, in a mount namespace of its own, and returns its pid. It ends with the test.
func mounting(t *testing.T, dir string) int {
	t.Helper()
	script := `set -e; mount --make-rprivate /; mount -t tmpfs none /mnt; mkdir /mnt/d; mount --bind "$1" /mnt/d
mount -t tmpfs none /run; mkdir -p "$2"; mount --move /mnt/d "$2"; echo ready; exec cat`
	cmd := exec.Command("sh", "-c", script, "sh", dir, edits.ShareDir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); errors.Is(err, syscall.EPERM) {
		t.Skip("namespaces cannot be made here: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Wait()
	})
	if said, err := bufio.NewReader(output).ReadString('\n'); err != nil || strings.TrimSpace(said) != "ready" {
		t.Fatalf("it said %q, %v", said, err)
	}
	return cmd.Process.Pid
}

// A directory of the same name on the same file system makes nobody a container's.
func TestContainerIsToldByTheWholePath(t *testing.T) {
	root := t.TempDir()
	ts := &Tenants{}
	ts.config.Root = root
	own, forged := string(Of(Containers(root), "an-id")), filepath.Join(root, "elsewhere", "an-id")
	for _, dir := range []string{own, forged} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got := ts.Container(mounting(t, own)); got != "an-id" {
		t.Errorf("with the directory mounted it is of %q", got)
	}
	if got := ts.Container(mounting(t, forged)); got != "" {
		t.Errorf("with another directory mounted it is of %q", got)
	}
}
