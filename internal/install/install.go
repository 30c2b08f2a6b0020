// Package install knows where Divvy's own files lie: the libraries it puts in
// front of the driver's and the small programs it runs.
package install

import (
	"fmt"
	"os"
	"path/filepath"
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

// treeOf is the tree of a program by its path.
func treeOf(program string) Tree {
	tree := filepath.Dir(filepath.Dir(program))
	if filepath.Base(tree) == "libexec" {
		tree = filepath.Dir(tree)
	}
	return Tree(tree)
}

// Library is a library that is put in front of the driver's, by its soname.
func (t Tree) Library(soname string) string {
	return filepath.Join(string(t), "lib", "divvy", soname)
}

// Program is one of the small programs, such as divvy-enter.
func (t Tree) Program(name string) string {
	return filepath.Join(string(t), "libexec", "divvy", name)
}
