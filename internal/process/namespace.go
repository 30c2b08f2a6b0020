package process

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Inner names a process as it knows itself: by the inode of its pid namespace
// and its number there.
type Inner struct {
	Namespace uint64
	PID       int
}

// Outer finds the processes of pid namespaces other than own, with the numbers that they
// have in ours. It reads /proc for every process of the machine, which takes some
// microseconds each, and leaves out those that it may not read.
func Outer(own uint64) map[Inner]ID {
	found := map[Inner]ID{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return found
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		dir := "/proc/" + entry.Name()
		var stat unix.Stat_t
		if unix.Stat(dir+"/ns/pid", &stat) != nil || stat.Ino == own {
			continue
		}
		id, err := Find(pid)
		if err != nil {
			continue
		}
		status, err := os.ReadFile(dir + "/status")
		inner := innermost(status)
		if err != nil || inner == 0 {
			continue
		}
		found[Inner{Namespace: stat.Ino, PID: inner}] = id
	}
	return found
}

// firstNamespace is the inode of the machine's first pid namespace, the same on every
// machine (PROC_PID_INIT_INO of Linux).
const firstNamespace = 0xEFFFFFFC

// InFirstNamespace reports whether this process is in the machine's first pid
// namespace, whose pids a driver tells.
func InFirstNamespace() bool {
	var stat unix.Stat_t
	return unix.Stat("/proc/self/ns/pid", &stat) == nil && stat.Ino == firstNamespace
}

// SharesMounts reports whether a process is in this process's mount namespace.
func SharesMounts(pid int) bool {
	var own, other unix.Stat_t
	return unix.Stat("/proc/self/ns/mnt", &own) == nil && unix.Stat("/proc/"+strconv.Itoa(pid)+"/ns/mnt", &other) == nil &&
		own.Ino == other.Ino
}

// MountsAreOurs reports whether the mount namespace of a process belongs to this process's
// own user namespace: only who may mount for everybody there has made it, and brings
// processes into it. It is false where the kernel does not tell.
func MountsAreOurs(pid int) bool {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	user, err := unix.IoctlRetInt(fd, unix.NS_GET_USERNS)
	if err != nil {
		return false
	}
	defer unix.Close(user)
	var own, owner unix.Stat_t
	return unix.Stat("/proc/self/ns/user", &own) == nil && unix.Fstat(user, &owner) == nil && own.Ino == owner.Ino
}

// innermost is the last number in the line NSpid of /proc/PID/status
// (proc_pid_status(5)), 0 where there is none.
func innermost(status []byte) int {
	for line := range bytes.Lines(status) {
		numbers, ok := bytes.CutPrefix(line, []byte("NSpid:"))
		if !ok {
			continue
		}
		fields := bytes.Fields(numbers)
		if len(fields) == 0 {
			return 0
		}
		pid, err := strconv.Atoi(string(fields[len(fields)-1]))
		if err != nil {
			return 0
		}
		return pid
	}
	return 0
}
