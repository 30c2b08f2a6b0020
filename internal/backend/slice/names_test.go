package slice

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/driver"
)

// compiled compiles a C source.
func compiled(t *testing.T, path, source string, args ...string) {
	t.Helper()
	cmd := exec.Command("cc", append([]string{"-x", "c", "-", "-x", "none", "-o", path}, args...)...)
	cmd.Stdin = strings.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
}

// asks is a program that says for each name whose function a handle of a library finds, and whether
// all the same it can be linked against the library.
const asks = `
#include <dlfcn.h>
#include <stdio.h>
int both(void);
int main(int argc, char **argv) {
    void *library = dlopen(argv[1], RTLD_NOW);
    for (int i = 2; i < argc; i++) {
        int (*f)(void) = (int (*)(void))dlsym(library, argv[i]);
        printf("%s %d\n", argv[i], f ? f() : 0);
    }
    return both() != 1;
}`

// A name that only ours has is found nowhere, one that only the driver has is the driver's, and one
// that both have is ours.
func TestForDriverHasTheDriversNames(t *testing.T) {
	dir := t.TempDir()
	theirs, ours, asking := filepath.Join(dir, "libreal.so.1"), filepath.Join(dir, "libours.so.1"), filepath.Join(dir, "asks")
	compiled(t, theirs, "int both(void) { return 2; } int theirs(void) { return 2; } static int unseen(void) { return 2; } int theirs2(void) { return unseen(); }",
		"-shared", "-fPIC", "-Wl,-soname,libreal.so.1")
	compiled(t, ours, "int both(void) { return 1; } int ours(void) { return 1; } int unseen(void) { return 1; }",
		"-shared", "-fPIC", "-Wl,-soname,libours.so.1", "-Wl,--no-as-needed", theirs, "-Wl,-rpath,"+mark, "-Wl,--enable-new-dtags")
	image, err := os.ReadFile(ours)
	if err != nil {
		t.Fatal(err)
	}
	patched, err := ForDriver(image, dir, theirs)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ours, patched, 0o755); err != nil {
		t.Fatal(err)
	}
	compiled(t, asking, asks, ours, "-ldl", "-Wl,-rpath,"+dir)
	said, err := exec.Command(asking, ours, "both", "ours", "theirs", "unseen").CombinedOutput()
	if want := "both 1\nours 0\ntheirs 2\nunseen 0\n"; err != nil || string(said) != want {
		t.Errorf("found:\n%s%v, want:\n%s", said, err, want)
	}
	if len(patched) != len(image) || bytes.Equal(patched, image) {
		t.Error("the size changed, or nothing did")
	}
	names, err := driver.Names(ours)
	if err != nil || len(names) != 1 || !names["both"] {
		t.Errorf("exports %v, %v, want both alone", names, err)
	}
}

func TestForDriverRefusesOthers(t *testing.T) {
	dir := t.TempDir()
	real, ours := filepath.Join(dir, "libreal.so.1"), filepath.Join(dir, "libours.so.1")
	object(t, real, "")
	object(t, ours, mark)
	foreign, err := os.ReadFile(real)
	if err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile(ours)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ForDriver(image, dir, filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no driver: %v", err)
	}
	if _, err := ForDriver(foreign, dir, real); !errors.Is(err, errRunpath) {
		t.Errorf("not ours: %v", err)
	}
	if err := os.WriteFile(real, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ForDriver(image, dir, real); err == nil {
		t.Error("a driver that is no library is taken")
	}
}
