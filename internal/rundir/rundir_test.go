package rundir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestMakeRefusesWhatOthersCanChange(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{open, link} {
		if err := Make(path, 0o700); !errors.Is(err, ErrOwner) {
			t.Errorf("Make(%s) = %v, want ErrOwner", path, err)
		}
	}
	fresh := filepath.Join(dir, "a", "b")
	for range 2 {
		if err := Make(fresh, 0o700); err != nil {
			t.Errorf("Make: %v", err)
		}
	}
}

// Who is kept out of their run directory is told of its fault. Other errors stay as they are.
func TestExplain(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	refused, other := &fs.PathError{Op: "open", Path: open, Err: syscall.EACCES}, errors.New("another")
	if err := Explain(refused, open); !errors.Is(err, ErrOwner) || !strings.Contains(err.Error(), "others can write to "+open) {
		t.Errorf("of an unsafe directory it says: %v", err)
	}
	for at, err := range map[string]error{dir: refused, filepath.Join(dir, "none"): refused, open: other} {
		if got := Explain(err, at); !errors.Is(got, err) || errors.Is(got, ErrOwner) {
			t.Errorf("Explain(%v, %s) = %v", err, at, got)
		}
	}
	if err := Explain(nil, open); err != nil {
		t.Errorf("no error became %v", err)
	}
}

func TestVariableMovesEverything(t *testing.T) {
	t.Setenv(Variable, "/somewhere/")
	if got := Path(); got != "/somewhere" {
		t.Errorf("Path() = %s", got)
	}
	if got := Tenants(); got != "/somewhere/tenants" {
		t.Errorf("Tenants() = %s", got)
	}
}

// What is wrong with a run directory is said once, also of a directory in it.
func TestMakeBelowSaysItOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := MakeBelow(filepath.Join(file, "run", "simgpu"), 0o700); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("said: %v", err)
	}
	below := filepath.Join(t.TempDir(), "run", "simgpu")
	if err := MakeBelow(below, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{below, filepath.Dir(below)} {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm()&0o022 != 0 {
			t.Errorf("%s: %v, %v", dir, info, err)
		}
	}
}

func TestMakeRefusesWhatIsNoText(t *testing.T) {
	dir := t.TempDir() + "/a\xff"
	if err := Make(dir, 0o700); !errors.Is(err, errText) {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Error("it was made")
	}
}
