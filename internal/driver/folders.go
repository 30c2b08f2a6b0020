package driver

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// folders remembers during one search which versions of the driver's libraries lie in each folder, and which folders a pattern
// has. A folder is read once, whichever names lead to it: a machine has thousands of libraries in a folder that is known by
// four names.
type folders struct {
	names map[inode][]string
	dirs  map[string][]string // by pattern
}

func newFolders() folders { return folders{map[inode][]string{}, map[string][]string{}} }

// inode is the identity of a folder.
type inode struct{ device, number uint64 }

// versions are the paths of the versions of a library in the folders of a pattern, in order.
func (f folders) versions(pattern string, library Library) (paths []string) {
	dirs, known := f.dirs[pattern]
	if !known {
		dirs, _ = filepath.Glob(pattern) // the error is of an invalid pattern, which none of ours is
		f.dirs[pattern] = dirs
	}
	for _, dir := range dirs {
		for _, name := range f.in(dir) {
			if strings.HasPrefix(name, library.Bare()) {
				paths = append(paths, filepath.Join(dir, name))
			}
		}
	}
	return paths
}

// in are the names of all versions of the libraries in a folder, in order. One that cannot be read has none.
func (f folders) in(dir string) []string {
	var at unix.Stat_t
	if unix.Stat(dir, &at) != nil || at.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	key := inode{at.Dev, at.Ino}
	if names, known := f.names[key]; known {
		return names
	}
	var names []string
	if folder, err := os.Open(dir); err == nil {
		all, _ := folder.Readdirnames(-1) // what was read before an error counts
		folder.Close()
		names = slices.DeleteFunc(all, func(name string) bool {
			return !slices.ContainsFunc(Libraries, func(l Library) bool { return strings.HasPrefix(name, l.Bare()) })
		})
		slices.Sort(names)
	}
	f.names[key] = slices.Clip(names)
	return f.names[key]
}
