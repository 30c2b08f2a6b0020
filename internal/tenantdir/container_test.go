package tenantdir

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/process/processtest"
)

// mounting starts a process with a directory mounted where containers have their
// share's, in a mount namespace of its own, and returns its pid. It ends with the test.
func mounting(t *testing.T, dir string) int {
	t.Helper()
	cmd := processtest.Start(t, syscall.CLONE_NEWNS, `mount --make-rprivate /; mount -t tmpfs none /mnt; mkdir /mnt/d
mount --bind "$1" /mnt/d; mount -t tmpfs none /run; mkdir -p "$2"; mount --move /mnt/d "$2"`, dir, edits.ShareDir)
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
