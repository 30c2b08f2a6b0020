package process

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Holders are the living processes that have a file or a device node open, by whatever path. Processes whose descriptors
// may not be read are left out: root sees all.
func Holders(path string) ([]ID, error) {
	wanted, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	name := filepath.Base(path)
	return living(func(pid int) bool { return holds(pid, name, wanted) }), nil
}

// holds reports whether a process has a file open. Only what has its name is looked at: to look at what somebody mounted
// may take for ever.
func holds(pid int, name string, wanted os.FileInfo) bool {
	folder := "/proc/" + strconv.Itoa(pid) + "/fd"
	dir, err := os.Open(folder)
	if err != nil {
		return false
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(mostOpen) // those that were read count
	for _, entry := range names {
		link := filepath.Join(folder, entry)
		if target, err := os.Readlink(link); err != nil || filepath.Base(target) != name {
			continue
		}
		if found, err := os.Stat(link); err == nil && same(found, wanted) {
			return true
		}
	}
	return false
}

// same reports whether both are one file, or nodes of one device.
func same(a, b os.FileInfo) bool {
	if a.Mode()&os.ModeCharDevice == 0 || b.Mode()&os.ModeCharDevice == 0 {
		return os.SameFile(a, b)
	}
	x, ok := a.Sys().(*syscall.Stat_t)
	y, also := b.Sys().(*syscall.Stat_t)
	return ok && also && x.Rdev == y.Rdev
}
