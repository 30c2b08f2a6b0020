package driver

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// hides tells what a finder says of a machine with these files in its /dev.
func hides(t *testing.T, mode os.FileMode, names ...string) bool {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(root, "dev", name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	hidden, err := Finder{Root: root}.Hidden()
	if err != nil {
		t.Fatal(err)
	}
	return hidden
}

func TestHidden(t *testing.T) {
	if hides(t, 0o600) || hides(t, 0o600, "nvidia0", "nvidia1", "null") {
		t.Error("GPUs that may be opened are hidden")
	}
	if os.Geteuid() == 0 {
		// Root passes every mode: try what others see, on a thread of its own.
		done := make(chan [2]bool)
		go func() {
			unprivileged(t)
			done <- [2]bool{hides(t, 0o400, "nvidia0"), hides(t, 0o400, "nvidiactl", "nvidia-uvm")}
		}()
		if got := <-done; !got[0] || got[1] {
			t.Errorf("nvidia0 that cannot be written hides GPUs: %v, nvidiactl: %v", got[0], got[1])
		}
		return
	}
	if !hides(t, 0o400, "nvidia0") || hides(t, 0o400, "nvidiactl", "nvidia-uvm") {
		t.Error("only a GPU's own node hides it")
	}
}

// unprivileged gives up the right to pass modes, for the calling goroutine's thread alone,
// which ends with it.
func unprivileged(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	var header unix.CapUserHeader
	var data [2]unix.CapUserData
	header.Version = unix.LINUX_CAPABILITY_VERSION_3
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Error(err)
		return
	}
	for i := range data {
		data[i].Effective = 0
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		t.Error(err)
	}
}

// CUDA is asked as a process of the caller would ask it, but for the variable that is to be
// understood.
func TestOrder(t *testing.T) {
	program := filepath.Join(t.TempDir(), "probe")
	script := "#!/bin/sh\n" + `echo "{\"uuids\": [\"$1\", \"$2\", \"${CUDA_VISIBLE_DEVICES-unset}\", \"$CUDA_DEVICE_ORDER\"]}"` + "\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CUDA_VISIBLE_DEVICES", "1")
	t.Setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
	d := &Driver{Chosen: map[Library]string{CUDA: "/lib/libcuda.so.1"}}
	got, err := Finder{}.Order(t.Context(), program, d)
	if want := []string{"--order", "/lib/libcuda.so.1", "unset", "PCI_BUS_ID"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	got, err = Finder{Instance: "/run/m"}.Order(t.Context(), program, d)
	if err != nil || got[1] != "/run/m/libcuda.so.1" {
		t.Errorf("%v, %v", got, err)
	}
	got, err = Finder{}.Faulting(t.Context(), program, d)
	if want := []string{"--managed", "/lib/libcuda.so.1", "unset", "PCI_BUS_ID"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for script, says := range map[string]string{
		"echo 'initialise CUDA: result 999' >&2; exit 1": "result 999",
		"echo no JSON": "read divvy-probe's answer",
	} {
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := (Finder{}).Order(t.Context(), program, d); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}
