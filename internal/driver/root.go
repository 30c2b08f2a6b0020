package driver

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links a path may have, as for the kernel.
const maxLinks = 40

// resolve returns the file that path names, both below the Finder's root and
// with it: a driver's links are absolute on the host, whose root is a folder of
// the agent's container.
func (f Finder) resolve(path string) (string, error) {
	root := filepath.Clean(f.Root)
	if f.Root == "" || root == "/" {
		return filepath.EvalSymlinks(path)
	}
	inside, ok := f.inside(path)
	if !ok {
		return filepath.EvalSymlinks(path)
	}
	done, rest := "/", strings.Split(strings.Trim(inside, "/"), "/")
	for links := 0; len(rest) > 0; {
		next := filepath.Join(done, rest[0])
		rest = rest[1:]
		target, err := os.Readlink(filepath.Join(root, next))
		if errors.Is(err, unix.EINVAL) { // not a link
			done = next
			continue
		}
		if err != nil {
			return "", err
		}
		if links++; links > maxLinks {
			return "", &os.PathError{Op: "resolve", Path: path, Err: unix.ELOOP}
		}
		if filepath.IsAbs(target) {
			done = "/"
		}
		// One part at a time: after a link, ".." is the parent of where it led.
		rest = append(strings.Split(strings.Trim(target, "/"), "/"), rest...)
	}
	return filepath.Join(root, done), nil
}

// inside is the path as the machine with the root has it.
func (f Finder) inside(path string) (string, bool) {
	root := filepath.Clean(f.Root)
	if f.Root == "" || root == "/" {
		return path, true
	}
	rest, ok := strings.CutPrefix(path, root)
	if !ok || rest != "" && rest[0] != '/' {
		return path, false
	}
	return "/" + strings.TrimPrefix(rest, "/"), true
}

// Host returns a path of this process's as the host has it: without the root
// below which this process sees the host.
func (f Finder) Host(path string) string {
	inside, _ := f.inside(path)
	return inside
}
