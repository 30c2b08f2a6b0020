package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// A machine without GPUs is told what serves, and nothing of running a program there.
func TestServeWithoutADriver(t *testing.T) {
	if found, err := (driver.Finder{}).Present(); err == nil && len(found.Files[driver.CUDA]) > 0 {
		t.Skip("this machine has a driver")
	}
	t.Setenv(rundir.Variable, t.TempDir())
	dir := filepath.Join(t.TempDir(), "serve")
	if status, _, errOut := call(t, "serve", "init", "--dir", dir, "gpu1"); status != 0 {
		t.Fatal(errOut)
	}
	status, _, errOut := call(t, "serve", "--dir", dir)
	if status != 1 || !strings.Contains(errOut, "no NVIDIA driver found") || !strings.Contains(errOut, errNothing.Error()) || strings.Contains(errOut, "divvy run") {
		t.Errorf("status %d: %s", status, errOut)
	}
}
