package command

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// here is the description of a new directory, in which the test is then.
func here(t *testing.T) wire.Directory {
	t.Helper()
	t.Chdir(t.TempDir())
	d, forget, err := Here()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(forget)
	return d
}

func TestDirectory(t *testing.T) {
	d := here(t)
	other := t.TempDir()
	t.Chdir(other)
	if err := Enter(d); err != nil {
		t.Fatal(err)
	}
	if at, err := os.Getwd(); err != nil || at != string(d.Path) {
		t.Errorf("it is in %s, %v, and not in %s", at, err, d.Path)
	}
}

func TestForget(t *testing.T) {
	t.Chdir(t.TempDir())
	d, forget, err := Here()
	if err != nil {
		t.Fatal(err)
	}
	forget()
	if entries, err := os.ReadDir(string(d.Path)); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if err := Enter(d); !errors.Is(err, ErrDirectory) {
		t.Errorf("a directory without its proof: %v", err)
	}
}

func TestDirectoryIsAnother(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *testing.T, d *wire.Directory)
	}{
		{"the path is not absolute", func(_ *testing.T, d *wire.Directory) { d.Path = "." }},
		{"there is no such directory", func(_ *testing.T, d *wire.Directory) { d.Path += "/none" }},
		{"it has no such file", func(t *testing.T, d *wire.Directory) { d.Path = wire.ExactText(t.TempDir()) }},
		{"the file has other content", func(_ *testing.T, d *wire.Directory) { d.Secret += "x" }},
		{"there is no secret", func(_ *testing.T, d *wire.Directory) { d.Secret = "" }},
		{"the proof is elsewhere", func(_ *testing.T, d *wire.Directory) { d.Proof = "../" + d.Proof }},
		{"the proof is any file", func(t *testing.T, d *wire.Directory) {
			write(t, filepath.Join(string(d.Path), "file"), d.Secret)
			d.Proof = "file"
		}},
		{"the proof is a link", func(t *testing.T, d *wire.Directory) {
			elsewhere := filepath.Join(t.TempDir(), "file")
			write(t, elsewhere, d.Secret)
			replace(t, d, func(path string) error { return os.Symlink(elsewhere, path) })
		}},
		{"the proof is a pipe", func(t *testing.T, d *wire.Directory) {
			replace(t, d, func(path string) error { return syscall.Mkfifo(path, 0o644) })
		}},
		{"the proof is a directory", func(t *testing.T, d *wire.Directory) {
			replace(t, d, func(path string) error { return os.Mkdir(path, 0o755) })
		}},
		{"there is no proof, and the file system is the host's own", func(t *testing.T, d *wire.Directory) {
			source, kind, inode, err := mounted(string(d.Path))
			if err != nil {
				t.Fatal(err)
			}
			*d = wire.Directory{Path: d.Path, Source: wire.ExactText(source), Type: kind, Inode: inode}
		}},
		{"there is no proof, and another source", func(_ *testing.T, d *wire.Directory) {
			*d = wire.Directory{Path: d.Path, Source: "files:/home", Type: "nfs4", Inode: 2}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := here(t)
			test.change(t, &d)
			if err := Enter(d); !errors.Is(err, ErrDirectory) {
				t.Errorf("it was entered: %v", err)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// replace puts something else in the place of the proof.
func replace(t *testing.T, d *wire.Directory, with func(path string) error) {
	t.Helper()
	path := filepath.Join(string(d.Path), d.Proof)
	if err := errors.Join(os.Remove(path), with(path)); err != nil {
		t.Fatal(err)
	}
}
