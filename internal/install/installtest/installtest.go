// Package installtest gives tests the source tree, and the tree that `make build` made.
package installtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install"
)

// Root returns the folder of the source, in which the test must run. Where a file was compiled does not tell it, because
// builds may leave paths out.
func Root(t testing.TB) string {
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
	return dir
}

// Tree returns the built tree, or fails the test where there is none.
func Tree(t testing.TB) install.Tree {
	t.Helper()
	tree := install.Tree(filepath.Join(Root(t), "build"))
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
