package hosts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/hostfile"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vmtest"
	"github.com/divvy-gpu/divvy/test/vm/guest"
)

// prepare gives the guest a fault until the test ends.
func prepare(t *testing.T, what vmtest.Preparation, gpu guest.Function) {
	t.Helper()
	switch what {
	case vmtest.Mount:
		mount(t)
	case vmtest.Reserve:
		reserve(t, gpu)
	case vmtest.Functions:
		gpu.Enable(t, 2)
	}
}

// mount mounts the one disk of the guest.
func mount(t *testing.T) {
	t.Helper()
	disks, err := filepath.Glob("/dev/nvme*n1")
	if err != nil || len(disks) != 1 {
		t.Fatalf("the guest has the disks %v, want one", disks)
	}
	at := t.TempDir()
	if err := unix.Mount(disks[0], at, "romfs", unix.MS_RDONLY, ""); err != nil {
		t.Fatalf("mount %s: %v", disks[0], err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Errorf("unmount %s: %v", disks[0], err)
		}
	})
}

func reserve(t *testing.T, gpu guest.Function) {
	t.Helper()
	const file = "/etc/modprobe.d/vfio.conf"
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	rule := fmt.Sprintf("options vfio-pci ids=%s:%s\n", gpu.Read("vendor")[2:], gpu.Read("device")[2:])
	if err := os.WriteFile(file, []byte(rule), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
	})
}

// The child that looks at the guest is this program again. It takes away its right to lock memory beyond its limit and
// starts itself anew: a limit counts only without that right.
const (
	looking = "VM_LOOK"
	limited = "VM_LOCKED"
)

// seen is what a child tells of the guest: the facts, and the text of a recording.
type seen struct {
	Host *facts.Host
	File string
}

func TestMain(m *testing.M) {
	status := 0
	switch {
	case os.Getenv(limited) != "":
		status = said(limit(os.Getenv(limited)))
	case os.Getenv(looking) != "":
		status = said(tell())
	default:
		status = m.Run()
	}
	os.Exit(status)
}

func said(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// look has a child look, which may lock so many bytes; 0 is no limit.
func look(t *testing.T, locked uint64) seen {
	t.Helper()
	child := exec.CommandContext(t.Context(), "/proc/self/exe")
	child.Env = append(os.Environ(), looking+"=1")
	if locked > 0 {
		child.Env = append(child.Env, fmt.Sprintf("%s=%d", limited, locked))
	}
	var faults bytes.Buffer
	child.Stderr = &faults
	text, err := child.Output()
	if err != nil {
		t.Fatalf("look at the guest: %v\n%s", err, faults.String())
	}
	var s seen
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func limit(bytes string) error {
	most, err := strconv.ParseUint(bytes, 10, 64)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: most, Max: most}); err != nil {
		return fmt.Errorf("limit locked memory: %w", err)
	}
	if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_IPC_LOCK, 0, 0, 0); err != nil {
		return fmt.Errorf("give up the right to lock memory: %w", err)
	}
	return syscall.Exec("/proc/self/exe", os.Args, []string{looking + "=1"})
}

func tell() error {
	host, err := facts.Read(os.DirFS("/"))
	if err != nil {
		return err
	}
	recorded, err := hostfile.CaptureMachine(os.DirFS("/"), nil)
	if err != nil {
		return err
	}
	var file bytes.Buffer
	if err := recorded.Format(&file); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(seen{host, file.String()})
}
