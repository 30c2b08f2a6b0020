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

// resolve follows the links of a path below the Finder's root, and returns a path
// below it. Absolute links lead to the root, because they are the host's and the
// root is the folder where the agent's container has the host's files.
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
		// Parts are resolved one by one, because ".." after a link is the parent of the link's target.
		rest = append(strings.Split(strings.Trim(target, "/"), "/"), rest...)
	}
	return filepath.Join(root, done), nil
}

// inside converts a path of this process to the machine's own. It is false for one outside the root.
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

// Host converts a path of this process to the host's own, by removing the root.
func (f Finder) Host(path string) string {
	inside, _ := f.inside(path)
	return inside
}
