package process

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// Uses are the files that a process has mapped or locked. They are read when they are
// first asked for, once, and no more of them than a bound: a process may have a million
// files open, and who asks has no time for that.
type Uses struct {
	// dir is the process's directory in /proc.
	dir            string
	mapped, locked map[File]bool
	mounts         []byte
	unread         bool
}

// What is read of one process.
const (
	// mostMappings is what the kernel permits a process where nobody raised that
	// (vm.max_map_count).
	mostMappings = 1 << 16
	// mostOpen is four times what a process may have open where nobody raised that.
	mostOpen = 4096
)

// UsesOf reads nothing yet.
func UsesOf(pid int) *Uses { return &Uses{dir: "/proc/" + strconv.Itoa(pid)} }

// Unread reports whether the process has more than was read until now.
func (u *Uses) Unread() bool { return u.unread }

// Mapped are the files that the process has mapped, none of a process whose mappings may
// not be read. Nobody may change the map.
func (u *Uses) Mapped() map[File]bool {
	if u.mapped != nil {
		return u.mapped
	}
	u.mapped = map[File]bool{}
	maps, err := os.Open(filepath.Join(u.dir, "maps"))
	if err != nil {
		return u.mapped
	}
	defer maps.Close()
	lines := bufio.NewScanner(maps)
	lines.Buffer(nil, 1<<16)
	for n := 0; lines.Scan(); n++ {
		if n == mostMappings {
			u.unread = true
			break
		}
		if f, ok := parseMap(lines.Bytes()); ok {
			u.mapped[f] = true
		}
	}
	return u.mapped
}

// Locked are the files that are locked through a descriptor which the process has open.
// Nothing is asked for that the file's own file system answers, which may be its user's.
// There are none of a process whose descriptors may not be read. Nobody may change the map.
func (u *Uses) Locked() map[File]bool {
	if u.locked != nil {
		return u.locked
	}
	u.locked = map[File]bool{}
	folder := filepath.Join(u.dir, "fdinfo")
	dir, err := os.Open(folder)
	if err != nil {
		return u.locked
	}
	defer dir.Close()
	names, err := dir.Readdirnames(mostOpen + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return u.locked
	}
	if len(names) > mostOpen {
		u.unread, names = true, names[:mostOpen]
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			continue // it is closed
		}
		for line := range bytes.Lines(text) {
			if f, ok := parseLock(line); ok {
				u.locked[f] = true
			}
		}
	}
	return u.locked
}

// Mounts is the process's /proc/PID/mountinfo.
func (u *Uses) Mounts() []byte {
	if u.mounts == nil {
		var whole bool
		u.mounts, whole = readMounts(u.dir)
		u.unread = u.unread || !whole
	}
	return u.mounts
}
