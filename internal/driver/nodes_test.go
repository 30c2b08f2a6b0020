package driver

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// All that leads to GPUs is found, of cards for displays those of NVIDIA's alone, and no link.
func TestNodes(t *testing.T) {
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, name) }
	for _, folder := range []string{"dev/nvidia-caps", "dev/dri", "sys/class/drm/renderD128/device", "sys/class/drm/renderD129/device", "machine", "tree"} {
		if err := os.MkdirAll(at(folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range []string{"dev/nvidia0", "dev/nvidiactl", "dev/null", "dev/dri/renderD128", "dev/dri/renderD129"} {
		err := unix.Mknod(at(node), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
		if errors.Is(err, unix.EPERM) {
			t.Skip("only root makes device nodes")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(os.Symlink("nvidia0", at("dev/nvidia-link")), os.Symlink(at("tree"), at("machine/tree")),
		os.WriteFile(at("sys/class/drm/renderD128/device/vendor"), []byte("0x10de\n"), 0o600),
		os.WriteFile(at("sys/class/drm/renderD129/device/vendor"), []byte("0x8086\n"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	want := []Node{{"/dev/nvidia-caps", true}, {"/dev/nvidia0", false}, {"/dev/nvidiactl", false}, {"/dev/dri/renderD128", false}}
	if got := (Finder{Root: root}).Nodes(); !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
	simulated := []Node{{at("machine"), true}, {at("tree"), true}}
	if got := (Finder{Instance: at("machine")}).Nodes(); len(got) < 2 || !slices.Equal(got[:2], simulated) {
		t.Errorf("of a simulated machine: %v, want %v first", got, simulated)
	}
}
