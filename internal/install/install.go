// Package install finds Divvy's own files: the libraries that cover the driver's,
// and the programs that Divvy runs.
package install

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Variable names the environment variable that overrides where Divvy is
// installed, for tests and for programs built outside the installed tree.
const Variable = "DIVVY_PREFIX"

// Tree is an installation, by its root directory.
type Tree string

// Find returns the tree that the running program belongs to: it is
// <tree>/bin/divvy or one of <tree>/libexec/divvy.
func Find() (Tree, error) {
	if prefix := os.Getenv(Variable); prefix != "" {
		absolute, err := filepath.Abs(prefix)
		if err != nil {
			return "", fmt.Errorf("find installation: %w", err)
		}
		return Tree(absolute), nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find installation: %w", err)
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", fmt.Errorf("find installation: %w", err)
	}
	return treeOf(self), nil
}

// treeOf returns the tree of a program, by the program's path.
func treeOf(program string) Tree {
	tree := filepath.Dir(filepath.Dir(program))
	if filepath.Base(tree) == "libexec" {
		tree = filepath.Dir(tree)
	}
	return Tree(tree)
}

// Library returns the path of the library that covers the driver's, by its soname.
func (t Tree) Library(soname string) string {
	return filepath.Join(string(t), "lib", "divvy", soname)
}

// Client returns the path of the library that sends calls of the driver to a worker, by its soname.
func (t Tree) Client(soname string) string {
	return filepath.Join(string(t), "lib", "remote", soname)
}

// Program returns the path of a helper program such as divvy-enter.
func (t Tree) Program(name string) string {
	return filepath.Join(string(t), "libexec", "divvy", name)
}

// Divvy returns the path of divvy for a program of the same build that wants to run it:
// the running program itself, if it is divvy, also where another one lies at its path by
// now.
func (t Tree) Divvy() (string, error) {
	const itself = "/proc/self/exe"
	self, err := os.Readlink(itself)
	if err != nil {
		return "", fmt.Errorf("find the running program: %w", err)
	}
	if filepath.Base(strings.TrimSuffix(self, " (deleted)")) != "divvy" {
		return filepath.Join(string(t), "bin", "divvy"), nil
	}
	running, err := os.Stat(itself)
	if err != nil {
		return "", fmt.Errorf("find the running program: %w", err)
	}
	if there, err := os.Stat(self); err == nil && os.SameFile(running, there) {
		return self, nil
	}
	return itself, nil
}
