package slice

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNoPlace is returned if no candidate can hold tenant directories.
var ErrNoPlace = errors.New("no place for tenant directories")

// ChoosePlace returns the first of the candidates whose file system is not
// mounted noexec, because libraries are mapped executable: /dev/shm is mounted so on
// some machines. Candidates on tmpfs should come first: pages are
// written all the time, and elsewhere that goes to a disk.
func ChoosePlace(candidates []string) (string, error) {
	return choosePlace(candidates, noexec)
}

func choosePlace(candidates []string, noexec func(string) (bool, error)) (string, error) {
	var reasons []string
	for _, path := range candidates {
		forbidden, err := noexec(path)
		switch {
		case err != nil:
			reasons = append(reasons, fmt.Sprintf("%s: %v", path, err))
		case forbidden:
			reasons = append(reasons, path+": mounted noexec")
		default:
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: %s: mount one of them without noexec", ErrNoPlace, strings.Join(reasons, "; "))
}

// noexec looks at the file system of an existing directory.
func noexec(path string) (bool, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return false, err
	}
	return fs.Flags&unix.ST_NOEXEC != 0, nil
}
