// Package sysfstest makes file systems as the kernel's, for tests.
package sysfstest

import (
	"io/fs"
	"strings"
	"testing/fstest"
)

// Tree has files by their names. Content that begins with "->" is where a link leads, and "-" is no file.
func Tree(files map[string]string) fstest.MapFS {
	tree := fstest.MapFS{}
	for name, content := range files {
		Set(tree, name, content)
	}
	return tree
}

// Set puts a file into a tree, as [Tree] has it.
func Set(tree fstest.MapFS, name, content string) {
	target, link := strings.CutPrefix(content, "->")
	switch {
	case content == "-":
		delete(tree, name)
	case link:
		tree[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
	default:
		tree[name] = &fstest.MapFile{Data: []byte(content), Mode: 0o444}
	}
}
