package claims

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/test/vm/guest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// disk is the name of the guest's disk of NVMe.
func disk(t *testing.T) string {
	t.Helper()
	found := glob(t, "/sys/devices/virtual/nvme-subsystem/*/nvme*n1")
	if len(found) != 1 {
		t.Fatalf("disks of NVMe: %q", found)
	}
	return filepath.Base(found[0])
}

// refused claims a function, and fails unless that is refused with such words and the function stays with its driver.
func refused(t *testing.T, device guest.Function, form, words string, also ...string) {
	t.Helper()
	before := device.Driver()
	agent(t)
	arguments := append([]string{"vm", "claim", "used", "--pci", string(device), "--form", form}, also...)
	_, err := settled(arguments...)
	t.Cleanup(func() { _, _ = settled("vm", "release", "used") })
	if err == nil || !strings.Contains(err.Error(), words) || device.Driver() != before {
		t.Errorf("claim of %s, which is in use: %v, want %q; driver %q", device, err, words, device.Driver())
	}
}

// A disk that a process has open raw is given to nobody, and the process is named.
func TestRawDisk(t *testing.T) {
	guest.Require(t)
	name := disk(t)
	opened(t, "/dev/"+name)
	refused(t, guest.Function(machine.SwitchedNVMe), "passthrough", "has /dev/"+name, "--also", machine.SwitchedCard)
}

// A disk that is mounted where no namespace of the host's shows it is given to nobody.
func TestPrivateMount(t *testing.T) {
	guest.Require(t)
	name, at := disk(t), t.TempDir()
	mounted, over := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the thread ends, and its namespace
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "")
		}
		if err == nil {
			err = unix.Mount("/dev/"+name, at, "romfs", unix.MS_RDONLY, "")
		}
		mounted <- err
		<-over
		_ = unix.Unmount(at, unix.MNT_DETACH)
		close(mounted)
	}()
	if err := <-mounted; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(over); <-mounted })
	if mounts, err := os.ReadFile("/proc/1/mountinfo"); err != nil || strings.Contains(string(mounts), name) {
		t.Fatalf("the host sees the mount: %v", err)
	}
	refused(t, guest.Function(machine.SwitchedNVMe), "passthrough", name+" is mounted or held", "--also", machine.SwitchedCard)
}
