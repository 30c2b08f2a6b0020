// Package installtest gives tests the tree that `make build` made.
package installtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install"
)

// Tree returns the built tree, or fails the test where there is none.
func Tree(t testing.TB) install.Tree {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for !exists(filepath.Join(dir, "go.mod")) {
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("this test runs inside the source tree only")
		}
		dir = parent
	}
	tree := install.Tree(filepath.Join(dir, "build"))
	if prefix := os.Getenv(install.Variable); prefix != "" {
		tree = install.Tree(prefix)
	}
	if program := tree.Program("divvy-enter"); !exists(program) {
		t.Fatalf("no %s: run `make build` first", program)
	}
	return tree
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Missing skips a test for want of a feature of the machine, or fails it where
// the environment variable DIVVY_REQUIRE, a list with commas, promises it.
func Missing(t testing.TB, feature string, err error) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("DIVVY_REQUIRE"), ","), feature) {
		t.Fatalf("%s is promised by DIVVY_REQUIRE and missing: %v", feature, err)
	}
	t.Skipf("no %s on this machine: %v", feature, err)
}
