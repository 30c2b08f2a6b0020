package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestReading(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"empty", "full/b", "full/a"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../bus/pci/drivers/vfio-pci", filepath.Join(dir, "driver")); err != nil {
		t.Fatal(err)
	}
	root := os.DirFS(dir)
	if names := Names(root, "full"); !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("names %q", names)
	}
	if none, empty := Names(root, "none"), Names(root, "empty"); none != nil || empty == nil || len(empty) > 0 {
		t.Errorf("%v of no folder and %v of an empty one", none, empty)
	}
	if link, folder := Target(root, "driver"), Target(root, "full"); link != "vfio-pci" || folder != "" {
		t.Errorf("targets %q and %q", link, folder)
	}
	if !There(root, "driver") || There(root, "none") {
		t.Error("a link that leads nowhere is there, and nothing else")
	}
}

func TestIsLate(t *testing.T) {
	late := &fs.PathError{Op: "read", Path: "driver_override", Err: os.ErrDeadlineExceeded}
	if !IsLate(fmt.Errorf("look: %w", late)) || IsLate(fs.ErrNotExist) || IsLate(errors.New("other")) || IsLate(nil) {
		t.Error("late is what has run out of time, and nothing else")
	}
}
