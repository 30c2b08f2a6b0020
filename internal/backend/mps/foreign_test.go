package mps

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/mps"
)

// stranger is a user without an account.
const stranger = 12345

// listen listens where clients look for a daemon, as another user.
func listen(t *testing.T, pipe string) net.Listener {
	t.Helper()
	type result struct {
		listener net.Listener
		err      error
	}
	done := make(chan result)
	go func() {
		// The thread ends with this function, because it stays locked: no other code runs as that user.
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, stranger, stranger, stranger); errno != 0 {
			done <- result{err: errno}
			return
		}
		listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(pipe, "control"), Net: "unixpacket"})
		done <- result{listener, err}
	}()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { _ = r.listener.Close() })
	return r.listener
}

// A daemon of another user where the GPU's daemon belongs is refused before a mode is changed, and neither asked nor ended.
func TestDaemonOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it listens as another user")
	}
	b := newBench(t, "550.163.01")
	made := b.open()
	dirs := made.dirs(gpu.UUID)
	if err := dirs.Make(); err != nil {
		t.Fatal(err)
	}
	// Only so can the other user make a socket there.
	for dir, mode := range map[string]os.FileMode{filepath.Dir(b.options.Dir): 0o755, filepath.Dir(dirs.Pipe): 0o755, dirs.Pipe: 0o777} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	listener := listen(t, dirs.Pipe)
	if err := os.Chmod(dirs.Pipe, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := made.Enter(t.Context(), gpu); !errors.Is(err, mps.ErrForeign) || !strings.Contains(err.Error(), "of user 12345 listens at") {
		t.Errorf("entered: %v", err)
	}
	if len(b.book.done) != 0 {
		t.Errorf("modes: %v", b.book.done)
	}
	if err := made.Leave(t.Context(), gpu); !errors.Is(err, mps.ErrForeign) {
		t.Errorf("left: %v", err)
	}
	if daemon, err := mps.At(dirs.Pipe); err != nil || daemon.User != "12345" {
		t.Errorf("at the place is %v, %v", daemon, err)
	}
	_ = listener.Close()
}

// From driver 615 on a daemon could keep each share's limits: Divvy goes on with the older commands, and says so.
func TestNewerDriver(t *testing.T) {
	for driver, want := range map[string]int{"550.163.01": 0, "614.99": 0, "615.10": 1, "620.01.02": 1, "": 0} {
		b := newBench(t, "550.163.01")
		b.options.Driver = func() string { return driver }
		b.options.Default = filepath.Join(t.TempDir(), "none")
		made := b.open()
		var told []backend.Incident
		made.Report(func(i backend.Incident) { told = append(told, i) })
		if err := made.Enter(t.Context(), gpu); err != nil {
			t.Fatal(err)
		}
		told = slices.DeleteFunc(told, func(i backend.Incident) bool {
			return !i.Note || !strings.Contains(i.Text, "driver "+driver+" could keep the limits of each share")
		})
		if len(told) != want {
			t.Errorf("driver %q: told %+v, want %d", driver, told, want)
		}
		b.grant(made, tenant("a", 30, gib))
		if got := b.limits(made); got != 30 {
			t.Errorf("driver %q: the daemon has %v", driver, got)
		}
	}
}

// What the administrator allows and the driver cannot do is said.
func TestMultiUserOfAnOlderDriver(t *testing.T) {
	for driver, want := range map[string]int{"550.163.01": 1, "555.58.02": 0} {
		b := newBench(t, driver)
		b.options.Default = filepath.Join(t.TempDir(), "none")
		b.options.MultiUser = func(backend.GPU) bool { return true }
		made := b.open()
		var told []backend.Incident
		made.Report(func(i backend.Incident) { told = append(told, i) })
		if err := made.Enter(t.Context(), gpu); err != nil {
			t.Fatal(err)
		}
		told = slices.DeleteFunc(told, func(i backend.Incident) bool { return !i.Note || !strings.Contains(i.Text, "multiUser has no effect") })
		if len(told) != want {
			t.Errorf("driver %s: told %+v, want %d", driver, told, want)
		}
	}
}
