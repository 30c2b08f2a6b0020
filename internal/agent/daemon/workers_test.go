package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/driver"
)

// A worker has those groups that nodes demand and its share's user has, and no others.
func TestDemandedGroups(t *testing.T) {
	dir := t.TempDir()
	var nodes []driver.Node
	for name, of := range map[string]struct {
		mode uint32
		gid  int
	}{"open": {0o666, 44}, "video": {0o660, 44}, "render": {0o640, 105}, "caps/one": {0o440, 106}, "caps/other": {0o400, 107}, "strange": {0o660, 108}, "root": {0o660, 0}} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		// The null device: only root makes others.
		err := unix.Mknod(path, unix.S_IFCHR|of.mode, int(unix.Mkdev(1, 3)))
		if errors.Is(err, unix.EPERM) {
			t.Skip("only root makes device nodes")
		}
		if err := errors.Join(err, os.Chmod(path, os.FileMode(of.mode)), os.Chown(path, 0, of.gid)); err != nil {
			t.Fatal(err)
		}
		if filepath.Dir(name) == "." {
			nodes = append(nodes, driver.Node{Path: path})
		}
	}
	nodes = append(nodes, driver.Node{Path: filepath.Join(dir, "caps"), Folder: true}, driver.Node{Path: filepath.Join(dir, "gone")})
	got := demanded(nodes, []int{0, 1000, 44, 105, 106, 107})
	if slices.Sort(got); !slices.Equal(got, []int{44, 105, 106}) {
		t.Errorf("groups %v", got)
	}
	if got := demanded(nodes, nil); len(got) > 0 {
		t.Errorf("of a user without groups: %v", got)
	}
}
