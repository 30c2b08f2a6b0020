package gpulock

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process/processtest"
)

// takeApart has a process in a user and a network namespace of its own take a GPU.
func takeApart(t *testing.T, test string, kind Kind, uuid string) (cmd *exec.Cmd, end func()) {
	t.Helper()
	return processtest.Again(t, test, "GPULOCK_TEST_APART="+string(kind), "GPULOCK_TEST_UUID="+uuid)
}

// heldApart is the process that takeApart starts.
func heldApart(t *testing.T) bool {
	kind := Kind(os.Getenv("GPULOCK_TEST_APART"))
	if kind == "" {
		return false
	}
	set := &Set{Kind: kind, Serve: closing}
	defer set.Close()
	if err := set.Take(t.Context(), os.Getenv("GPULOCK_TEST_UUID")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stdout.WriteString(processtest.Ready); err != nil {
		t.Fatal(err)
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // until its end
	return true
}

// An agent in another network namespace holds its GPU too, and is named.
func TestNetworkNamespaces(t *testing.T) {
	if heldApart(t) {
		return
	}
	for _, killed := range []bool{false, true} {
		kind, uuid := names(t)
		other, end := takeApart(t, "TestNetworkNamespaces", kind, uuid)
		set := &Set{Kind: kind, Serve: closing}
		var held *HeldError
		if err := set.Take(t.Context(), uuid); !errors.As(err, &held) || held.Holder.PID != other.Process.Pid || held.Holder.UID != os.Getuid() || set.Has(uuid) {
			t.Fatalf("%v, want process %d named", err, other.Process.Pid)
		}
		if !strings.Contains(held.Error(), "process ") {
			t.Error(held)
		}
		if h, ok := kind.Of(t.Context(), uuid); !ok || h.PID != other.Process.Pid {
			t.Errorf("the holder is %+v, %v", h, ok)
		}
		if all, err := kind.All(t.Context()); err != nil || len(all) != 1 || all[0].UUID != uuid || all[0].PID != other.Process.Pid {
			t.Errorf("held are %+v, %v", all, err)
		}
		if killed {
			if err := other.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		end()
		if h, ok := kind.Of(t.Context(), uuid); ok {
			t.Errorf("killed %v: after its end %+v holds it", killed, h)
		}
		if err := set.Take(t.Context(), uuid); err != nil {
			t.Error(err)
		}
		set.Close()
		if _, err := os.Lstat(kind.file(uuid)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a file is left: %v", err)
		}
	}
}

// Whatever somebody puts at the file's path keeps nobody from a GPU: the lock is advice.
func TestFileOfSomebody(t *testing.T) {
	for name, made := range map[string]func(path string) error{
		"a folder":         func(path string) error { return os.Mkdir(path, 0o700) },
		"a link":           func(path string) error { return os.Symlink("/dev/null", path) },
		"a pipe":           func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a file unlocked":  func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
		"a link to nobody": func(path string) error { return os.Symlink(path+".none", path) },
	} {
		kind, uuid := names(t)
		path := kind.file(uuid)
		if err := made(path); err != nil {
			t.Fatal(err)
		}
		set := &Set{Kind: kind, Serve: closing}
		if err := set.Take(t.Context(), uuid); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if h, ok := kind.Of(t.Context(), uuid); !ok || h.PID != os.Getpid() {
			t.Errorf("%s: the holder is %+v, %v", name, h, ok)
		}
		set.Close()
		if err := os.RemoveAll(path); err != nil {
			t.Error(err)
		}
	}
}
