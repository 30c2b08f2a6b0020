package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestEach(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(
		os.MkdirAll(filepath.Join(dir, "b", "empty"), 0o755), os.WriteFile(filepath.Join(dir, "b", "program"), []byte("x"), 0o755),
		os.WriteFile(filepath.Join(dir, "a"), []byte("text"), 0o600), os.Symlink("program", filepath.Join(dir, "b", "link")),
	); err != nil {
		t.Fatal(err)
	}
	read := func(from string) (all []string, err error) {
		err = Each(from, func(inside string, content []byte, program bool) error {
			all = append(all, fmt.Sprintf("%s %s %v", inside, content, program))
			return nil
		})
		return all, err
	}
	if all, err := read(dir); err != nil || !slices.Equal(all, []string{"a text false", "b/link x true", "b/program x true"}) {
		t.Errorf("%q, %v", all, err)
	}
	if all, err := read(filepath.Join(dir, "a")); err != nil || !slices.Equal(all, []string{". text false"}) {
		t.Errorf("%q, %v", all, err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "c")); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{dir, filepath.Join(dir, "none")} {
		if _, err := read(from); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", from, err)
		}
	}
	stop := errors.New("stop")
	if err := Each(dir, func(string, []byte, bool) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
}
