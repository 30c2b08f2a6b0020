package launch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A new installation is advised where the file of a program is the cause, and nowhere else.
func TestNotRun(t *testing.T) {
	none := Plan{Program: filepath.Join(t.TempDir(), "none"), Args: []string{"none"}}
	if err := none.Exec(); !errors.Is(err, os.ErrNotExist) || !strings.HasSuffix(err.Error(), "reinstall Divvy") {
		t.Error(err)
	}
	long := Plan{Program: "/bin/true", Args: []string{"true", strings.Repeat("x", 1<<20)}}
	if err := long.Exec(); !errors.Is(err, syscall.E2BIG) || strings.Contains(err.Error(), "reinstall") {
		t.Error(err)
	}
}
