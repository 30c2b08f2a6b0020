package binding

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
	"github.com/divvy-gpu/divvy/test/vm/guest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// Whoever has the GPU open by a node that was made elsewhere is named.
func TestHolderOfAnotherNode(t *testing.T) {
	guest.Require(t)
	gpu := guest.Function(machine.Accelerator)
	gpu.Bind(t, "nvidia")
	var stat unix.Stat_t
	must(t, unix.Stat(guest.Nodes()[0], &stat))
	node := filepath.Join(t.TempDir(), "other")
	must(t, unix.Mknod(node, unix.S_IFCHR|0o600, int(stat.Rdev)))
	h := holder(t, node)
	if _, err := plan(gpu); !errors.Is(err, binding.ErrHeld) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", h.Process.Pid)) {
		t.Errorf("a GPU that process %d holds is planned for: %v", h.Process.Pid, err)
	}
	end(h)
}

// Who keeps a function by its descriptor of VFIO alone, which tells no group, is named once the kernel has told that somebody does.
func TestHolderOfADevice(t *testing.T) {
	guest.Require(t)
	virtual := guest.Function(machine.RootedCard).Enable(t, 1)[0]
	b := open(t, fileName(t), nil)
	must(t, b.Bind(t.Context(), "ada", planned(t, virtual)))
	must(t, guest.OpenGroup(virtual.Group()))
	vm, err := guest.StartVM(t, 256<<20, "vfio-pci,host="+string(virtual))
	must(t, err)
	descriptor := taken(t, vm.Pid())
	vm.Stop()
	name := fmt.Sprintf("process %d", os.Getpid())
	if _, err := b.Release(t.Context(), "ada"); !errors.Is(err, vfio.ErrOpen) || !strings.Contains(err.Error(), name) {
		t.Errorf("released while this process has it: %v, want %s", err, name)
	}
	must(t, unix.Close(descriptor))
	if left, err := b.Release(t.Context(), "ada"); err != nil || len(left) > 0 {
		t.Errorf("released: %v, %v", left, err)
	}
}

// taken is a process's descriptor of a device of VFIO, which this process has then too.
func taken(t *testing.T, pid int) int {
	t.Helper()
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(folder)
	must(t, err)
	for _, entry := range entries {
		if target, err := os.Readlink(filepath.Join(folder, entry.Name())); err != nil || target != "anon_inode:[vfio-device]" {
			continue
		}
		process, err := unix.PidfdOpen(pid, 0)
		must(t, err)
		defer unix.Close(process)
		var theirs int
		_, err = fmt.Sscan(entry.Name(), &theirs)
		must(t, err)
		ours, err := unix.PidfdGetfd(process, theirs, 0)
		must(t, err)
		return ours
	}
	t.Fatalf("process %d has no device of VFIO open", pid)
	return -1
}
