package process

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// mostEnvironment is what is read of an environment, in bytes: as much as a process may
// have where nobody raised the size of its stack.
const mostEnvironment = 2 << 20

// StartedWith reports whether a text is in the environment with which a process was
// started. It is false of a process whose environment may not be read.
func StartedWith(pid int, text string) bool {
	file, err := os.Open("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	defer file.Close()
	environment, err := io.ReadAll(io.LimitReader(file, mostEnvironment))
	return err == nil && bytes.Contains(environment, []byte(text))
}

// HasOpen reports whether a process has one of the things open that links of descriptors
// name, such as "socket:[1]". It is false of a process whose descriptors may not be read,
// and of more than can be open where nobody raised that only some are read.
func HasOpen(pid int, links map[string]bool) bool {
	folder := "/proc/" + strconv.Itoa(pid) + "/fd"
	dir, err := os.Open(folder)
	if err != nil {
		return false
	}
	defer dir.Close()
	names, err := dir.Readdirnames(mostOpen)
	if err != nil && !errors.Is(err, io.EOF) {
		return false
	}
	for _, name := range names {
		if target, err := os.Readlink(filepath.Join(folder, name)); err == nil && links[target] {
			return true
		}
	}
	return false
}
