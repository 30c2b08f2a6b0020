package mps

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// reaches reports whether a user can read a file, as the kernel sees it.
func reaches(t *testing.T, uid int, path string) bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "cat", path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return err == nil
}

func TestAdmit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT RUN: only root can run programs of other users")
	}
	dir, err := os.MkdirTemp("", "mps")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	dirs := DirsOf(dir, "GPU-01234567-89ab-cdef-0123-456789abcdef")
	if err := dirs.Make(); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dirs.Pipe, controlSocket)
	if err := os.WriteFile(socket, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	const one, two, three = 61001, 61002, 61003
	for i, c := range []struct {
		users     []int
		everybody bool
		reach     string
	}{
		{nil, false, ""},
		{[]int{two, one, two, 0}, false, "61001 61002 "},
		{[]int{three}, false, "61003 "},
		{[]int{one, -1}, true, "61001 61002 61003 "},
		{[]int{one}, false, "61001 "},
		{nil, false, ""},
	} {
		if err := dirs.Admit(c.users, c.everybody); err != nil {
			t.Fatal(err)
		}
		var got string
		for _, uid := range []int{one, two, three} {
			if reaches(t, uid, socket) {
				got += strconv.Itoa(uid) + " "
			}
		}
		if got != c.reach {
			t.Errorf("step %d, users %v, everybody %v: %q reach the daemon, want %q", i, c.users, c.everybody, got, c.reach)
		}
	}
}
