package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// The demonstration passes all its checks, and leaves nothing behind. What it needs is built already: make, which must not build
// under other tests, is told so.
func TestDemo(t *testing.T) {
	prefix, err := filepath.Abs(string(installtest.Tree(t)))
	if err != nil {
		t.Fatal(err)
	}
	scratch := t.TempDir()
	demo := exec.Command("make", "--no-print-directory", "-o", "build", "-o", filepath.Join(prefix, "bin", "gpubench"), "demo-swap", "B="+prefix)
	demo.Dir = installtest.Root(t)
	demo.Env = append(slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return strings.HasPrefix(name, "MAKE") || name == "MFLAGS" // of the make that runs the tests
	}), "TMPDIR="+scratch)
	text, err := demo.CombinedOutput()
	if err != nil || strings.Count(string(text), "PASS  ") != 8 || strings.Contains(string(text), "FAIL") {
		t.Errorf("%v\n%s", err, text)
	}
	if left, _ := filepath.Glob(filepath.Join(scratch, "divvy-demo-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
