package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// FileSystem is what a directory's file system is called.
type FileSystem struct {
	// Type is such as nfs4, and Source such as files:/home.
	Type, Source string
}

// FileSystemOf tells of the file system on which a directory lies. Links in the path are followed.
func FileSystemOf(dir string) (FileSystem, error) {
	path, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return FileSystem{}, fmt.Errorf("resolve %s: %w", dir, err)
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return FileSystem{}, fmt.Errorf("read the mounts: %w", err)
	}
	found, ok := fileSystemIn(table, path)
	if !ok {
		return FileSystem{}, fmt.Errorf("find the mount of %s: there is none", dir)
	}
	return found, nil
}

// fileSystemIn finds what a path without links lies on, in a table of mounts. It is pure.
func fileSystemIn(table []byte, path string) (found FileSystem, ok bool) {
	longest := -1
	for line := range bytes.Lines(table) {
		_, at, valid := parseMount(line)
		below, err := filepath.Rel(at, path)
		if !valid || err != nil || !filepath.IsLocal(below) || len(at) < longest {
			continue // a later mount at the same place hides the earlier one
		}
		// What follows the optional fields, which end with a dash (proc_pid_mountinfo(5)).
		_, rest, _ := bytes.Cut(line, []byte(" - "))
		fields := bytes.Fields(rest)
		if len(fields) < 2 {
			continue
		}
		longest = len(at)
		found = FileSystem{Type: string(fields[0]), Source: unescape(string(fields[1]))}
	}
	return found, longest >= 0
}
