package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Who is told that a file system is full is told who fills it and what to do.
func TestFullFileSystem(t *testing.T) {
	if _, ok := NoRoom(errors.New("another")); ok {
		t.Error("any error is one of a full file system")
	}
	if _, ok := NoRoom(nil); ok {
		t.Error("no error is one of a full file system")
	}
	path := filepath.Join(t.TempDir(), "file")
	f, ok := NoRoom(fmt.Errorf("keep it: %w", &fs.PathError{Op: "write", Path: path, Err: syscall.ENOSPC}))
	if !ok || !strings.HasPrefix(path, f.Dir) {
		t.Errorf("%+v, %v", f, ok)
	}
	f = Full{Dir: "/dev/shm", Holders: "user u6 has 7 MiB", most: 6}
	for reader, says := range map[int]string{0: "delete what is not needed in /dev/shm", 6: "delete what you do not need", 7: "ask them or an administrator"} {
		if said := f.Text(reader); !strings.HasPrefix(said, "/dev/shm is full; user u6 has 7 MiB there: ") || !strings.Contains(said, says) {
			t.Errorf("%d is told %q", reader, said)
		}
	}
}

// What lies in a directory counts for its owner, that of other file systems does not.
func TestUsageByUser(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	bytes, files := usage(dir)
	if uid := os.Getuid(); bytes[uid] < 3<<20 || bytes[uid] > 4<<20 || files[uid] != 2 || len(bytes) != 1 {
		t.Errorf("%v bytes, %v files", bytes, files)
	}
}
