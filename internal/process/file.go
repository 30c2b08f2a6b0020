package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// File identifies a file of this machine, which may have another path in another mount
// namespace.
type File struct {
	// Major and Minor are the file system's.
	Major, Minor uint32
	Inode        uint64
}

// FileAt returns the file at a path; it does not follow a link there.
func FileAt(path string) (File, error) {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		return File{}, fmt.Errorf("look at %s: %w", path, err)
	}
	return File{Major: unix.Major(stat.Dev), Minor: unix.Minor(stat.Dev), Inode: stat.Ino}, nil
}

// parseLock reads the file of a line "lock:" of /proc/PID/fdinfo/FD: a number, the kind
// (OFDLCK for those of a description), two words, a pid, the file as major:minor:inode,
// and the range.
func parseLock(line []byte) (File, bool) {
	fields := bytes.Fields(line)
	if len(fields) < 7 || string(fields[0]) != "lock:" {
		return File{}, false
	}
	at := bytes.LastIndexByte(fields[6], ':')
	if at < 0 {
		return File{}, false
	}
	file, ok := parseDevice(string(fields[6][:at]), 16)
	inode, err := strconv.ParseUint(string(fields[6][at+1:]), 10, 64)
	file.Inode = inode
	return file, ok && err == nil
}

// parseMap reads the file of a line of /proc/PID/maps (proc_pid_maps(5)):
// address, rights, offset, device, inode, path. Memory without a file has the
// inode 0.
func parseMap(line []byte) (File, bool) {
	fields := bytes.Fields(line)
	if len(fields) < 5 {
		return File{}, false
	}
	device, ok := parseDevice(string(fields[3]), 16)
	inode, err := strconv.ParseUint(string(fields[4]), 10, 64)
	if !ok || err != nil || inode == 0 {
		return File{}, false
	}
	device.Inode = inode
	return device, true
}

func parseDevice(text string, base int) (File, bool) {
	major, minor, _ := strings.Cut(text, ":")
	first, err := strconv.ParseUint(major, base, 32)
	if err != nil {
		return File{}, false
	}
	second, err := strconv.ParseUint(minor, base, 32)
	return File{Major: uint32(first), Minor: uint32(second)}, err == nil
}

// Mount is what is mounted somewhere.
type Mount struct {
	Major, Minor uint32
	// Root is the path of what is mounted below the root of its file system.
	Root string
}

// MountsAt returns what is mounted at target in a process's mount namespace, also what
// a later mount hides, in the order of /proc/PID/mountinfo; target is an absolute path
// below the process's own root. Of very many mounts the first are told.
func MountsAt(pid int, target string) []Mount {
	data, _ := readMounts("/proc/" + strconv.Itoa(pid))
	var found []Mount
	for line := range bytes.Lines(data) {
		if m, at, valid := parseMount(line); valid && at == target {
			found = append(found, m)
		}
	}
	return found
}

// Mounts reports whether a table of mounts (/proc/PID/mountinfo) has something mounted
// that is, or is below, a folder with a name. It counts what is mounted: where it is
// mounted, and what a file system calls itself, is up to every user who may mount file
// systems of their own.
func Mounts(table []byte, folder string) bool {
	for line := range bytes.Lines(table) {
		if m, _, valid := parseMount(line); valid && strings.Contains(m.Root+"/", "/"+folder+"/") {
			return true
		}
	}
	return false
}

// In reports whether a table of mounts (/proc/PID/mountinfo) has this mounted, or something
// below it.
func (m Mount) In(table []byte) bool {
	for line := range bytes.Lines(table) {
		o, _, valid := parseMount(line)
		if valid && o.Major == m.Major && o.Minor == m.Minor && (o.Root == m.Root || strings.HasPrefix(o.Root, m.Root+"/")) {
			return true
		}
	}
	return false
}

// MountOf tells what a bind mount of a directory would mount: the directory's path below
// the root of its file system. Links in the path are followed.
func MountOf(dir string) (Mount, error) {
	path, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Mount{}, fmt.Errorf("resolve %s: %w", dir, err)
	}
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Mount{}, fmt.Errorf("read the mounts: %w", err)
	}
	var found Mount
	longest := -1
	for line := range bytes.Lines(data) {
		m, at, valid := parseMount(line)
		below, err := filepath.Rel(at, path)
		if !valid || err != nil || !filepath.IsLocal(below) || len(at) < longest {
			continue // a later mount at the same place hides the earlier one
		}
		longest = len(at)
		found = Mount{Major: m.Major, Minor: m.Minor, Root: filepath.Join(m.Root, below)}
	}
	if longest < 0 {
		return Mount{}, fmt.Errorf("find the mount of %s: there is none", dir)
	}
	return found, nil
}

// parseMount reads a line of /proc/PID/mountinfo (proc_pid_mountinfo(5)): id,
// parent, device, root, mount point.
func parseMount(line []byte) (m Mount, at string, ok bool) {
	fields := bytes.Fields(line)
	if len(fields) < 5 {
		return Mount{}, "", false
	}
	device, ok := parseDevice(string(fields[2]), 10)
	m = Mount{Major: device.Major, Minor: device.Minor, Root: unescape(string(fields[3]))}
	return m, unescape(string(fields[4])), ok
}

// unescape decodes the octal escapes that the kernel writes for blanks and backslashes,
// such as \040.
func unescape(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+4 <= len(text) {
			if code, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		out.WriteByte(text[i])
	}
	return out.String()
}
