package rundir

import (
	"errors"
	"os"
	"path/filepath"
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

func TestVariableMovesEverything(t *testing.T) {
	t.Setenv(Variable, "/somewhere/")
	if got := Path(); got != "/somewhere" {
		t.Errorf("Path() = %s", got)
	}
	if got := Tenants(); got != "/somewhere/tenants" {
		t.Errorf("Tenants() = %s", got)
	}
}
