package tenantdir

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/process/processtest"
)

// A process of another user is in a share of root's where root mounted the share's directory
// for it, and not where its own user did.
func TestWhatASharesMountsEnclose(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root mounts without a user namespace")
	}
	root := t.TempDir()
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil { // others have to reach it
		t.Fatal(err)
	}
	of := func(dir string) backend.Tenant {
		return backend.Tenant{ID: "an-id", Dir: filepath.Join(root, dir), Layer: backend.LayerNamespace}
	}
	share := of("tenants/an-id")
	for _, dir := range []string{share.Dir, of("elsewhere/an-id").Dir} {
		if err := os.MkdirAll(filepath.Join(dir, "library"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const become = `exec setpriv --reuid 4711 --clear-groups sh -c "echo ready; exec cat"`
	const bind = `mount --make-rprivate /; mount --bind "$1/library" /mnt; `
	const alone = `exec setpriv --reuid 4711 --clear-groups unshare --user --map-root-user --mount sh -c 'mount --bind "$1" /mnt; echo ready; exec cat' sh "$1"`
	ts := &Tenants{}
	for name, c := range map[string]struct {
		namespaces  uintptr
		script, dir string
		want        bool
	}{
		"root's mounts":   {syscall.CLONE_NEWNS, bind + become, share.Dir, true},
		"another share's": {syscall.CLONE_NEWNS, bind + become, of("elsewhere/an-id").Dir, false},
		"its user's":      {0, alone, share.Dir, false},
		"the machine's":   {0, become, share.Dir, false},
		"nothing of it":   {syscall.CLONE_NEWNS, become, share.Dir, false},
	} {
		t.Run(name, func(t *testing.T) {
			pid := processtest.Start(t, c.namespaces, c.script, c.dir).Process.Pid
			if got := ts.Has(share, pid); got != c.want {
				t.Errorf("the share has it: %v", got)
			}
			share.UID = 4712
			if ts.Has(share, pid) {
				t.Error("a share of another user's has it")
			}
			share.UID = 0
		})
	}
}
