package kit

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestArchive(t *testing.T) {
	from := t.TempDir()
	if err := os.MkdirAll(filepath.Join(from, "deep"), 0o755); err != nil { //nolint:gosec // a test's own
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "deep/file"), []byte("twelve bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("deep/file", filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	var disk bytes.Buffer
	archive := NewArchive(&disk)
	archive.Tree("/source", from)
	archive.File("source/deep/file", 0o644, []byte("a second of that name is left out"))
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	var names []string
	for at := 0; at < disk.Len(); {
		name, size := entryAt(t, disk.Bytes()[at:])
		names = append(names, name)
		at += size
	}
	if got, want := strings.Join(names, " "), "source source/deep source/deep/file source/link TRAILER!!!"; got != want {
		t.Errorf("the disk has %q, want %q", got, want)
	}
}

// entryAt returns the name of an entry and how many bytes it takes.
func entryAt(t *testing.T, b []byte) (string, int) {
	t.Helper()
	if len(b) < 110 || string(b[:6]) != "070701" {
		t.Fatalf("no entry begins with %q", b[:min(len(b), 20)])
	}
	number := func(i int) int {
		n := 0
		for _, digit := range b[6+8*i : 14+8*i] {
			n = n*16 + strings.IndexByte("0123456789ABCDEF", digit)
		}
		return n
	}
	name := string(b[110 : 110+number(11)-1])
	round := func(n int) int { return (n + 3) / 4 * 4 }
	return name, round(110+number(11)) + round(number(6))
}

func TestArchiveTellsTheFirstError(t *testing.T) {
	archive := NewArchive(&bytes.Buffer{})
	archive.Copy("a", filepath.Join(t.TempDir(), "missing"))
	archive.File("b", 0o644, nil)
	if err := archive.Close(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want that a file is missing", err)
	}
}

// A kit without its last mark is one that an interrupted run left.
func TestHalfAKit(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "digests"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(folder); !errors.Is(err, ErrMissing) {
		t.Errorf("%v, want ErrMissing", err)
	}
	if err := os.WriteFile(filepath.Join(folder, ".complete"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(folder); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "0 kernels") {
		t.Errorf("a kit without kernel: %v, want ErrMissing", err)
	}
}
