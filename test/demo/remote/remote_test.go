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
	if text, err := exec.Command("unshare", "--user", "--map-root-user", "--net", "--mount", "--uts", "ip", "link", "show").CombinedOutput(); err != nil {
		installtest.Missing(t, "userns", &missing{string(text)})
	}
	before := left(t)
	demo := exec.Command("make", "--no-print-directory", "-o", "build", "demo-remote", "B="+prefix)
	demo.Dir = installtest.Root(t)
	demo.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return strings.HasPrefix(name, "MAKE") || name == "MFLAGS" // of the make that runs the tests
	})
	text, err := demo.CombinedOutput()
	if err != nil || strings.Count(string(text), "PASS  ") != 9 || strings.Contains(string(text), "FAIL") {
		t.Errorf("%v\n%s", err, text)
	}
	if after := left(t); !slices.Equal(before, after) {
		t.Errorf("left behind: %v", after)
	}
}

// left are the folders of demonstrations that run or were left.
func left(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("/dev/shm/divvy-demo-remote-*")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// missing is why this machine has no namespaces for users.
type missing struct{ text string }

// Error implements error.
func (m *missing) Error() string { return "make namespaces: " + strings.TrimSpace(m.text) }
