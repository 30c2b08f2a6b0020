package process

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// Owner returns the user whose a process is, -1 if there is no such process: its real user,
// whatever a set-user-ID program runs as, or the user in whose user namespace it became
// another one. The owner of its folder in /proc is neither.
func Owner(pid int) int {
	real, _ := users(pid)
	return owner(pid, real)
}

// owner is [Owner] of a process whose real user is known.
func owner(pid, real int) int {
	if real <= 0 || sharesUsers(pid) {
		return real
	}
	if maker, ok := Maker(pid); ok && maker != 0 { // root makes them for others
		return maker
	}
	return real
}

// sharesUsers reports whether a process is in this process's user namespace.
func sharesUsers(pid int) bool {
	var own, other unix.Stat_t
	return unix.Stat("/proc/self/ns/user", &own) == nil && unix.Stat("/proc/"+strconv.Itoa(pid)+"/ns/user", &other) == nil && own.Ino == other.Ino
}

// SharesUsers reports whether the process is, for certain, in this process's user namespace. A process that has entered
// another one never comes back.
func (id ID) SharesUsers() bool { return sharesUsers(id.PID) && id.Alive() }

// BelongsTo reports whether the process is a user's own: one that has the user as its
// real one, or that runs in a user namespace which the user made. What a set-user-ID
// program runs as is no matter: the real user is who started it, and the kernel lets that
// user signal it. A program such as sudo, which has then changed its real user too, is
// the other user's. In a user namespace of theirs a user has all rights to every process,
// whatever user it became; of root that says nothing, who makes them for anybody.
func (id ID) BelongsTo(uid int) bool {
	real, _ := users(id.PID)
	return id.Alive() && real >= 0 && (real == uid || uid != 0 && madeNamespace(id.PID, uid)) && id.Alive()
}

// SameUser reports whether two living processes have the same real user.
func (id ID) SameUser(other ID) bool {
	mine, _ := users(id.PID)
	theirs, _ := users(other.PID)
	return mine >= 0 && mine == theirs && id.Alive() && other.Alive()
}

// statusSize is more than /proc/PID/status has before the line Uid ends: a name of at most 64 bytes, of which each may be
// written as four characters, and eight short lines.
const statusSize = 1024

// users are the real and the effective user of a process, -1 if there is no such process.
func users(pid int) (real, effective int) {
	var data [statusSize]byte
	status, err := beginningOf(pid, "status", data[:])
	if err != nil {
		return -1, -1
	}
	return parseUsers(status)
}

// parseUsers reads the first two numbers in the line Uid of /proc/PID/status
// (proc_pid_status(5)); they are -1 where they are not there.
func parseUsers(status []byte) (real, effective int) {
	for line := range bytes.Lines(status) {
		numbers, ok := bytes.CutPrefix(line, []byte("Uid:"))
		fields := bytes.Fields(numbers)
		if !ok || len(fields) < 2 {
			continue
		}
		first, err := strconv.ParseUint(string(fields[0]), 10, 32)
		second, errSecond := strconv.ParseUint(string(fields[1]), 10, 32)
		if err == nil && errSecond == nil {
			return int(first), int(second)
		}
	}
	return -1, -1
}

// madeNamespace reports whether a user made the user namespace of a process, or one of
// those around it that are below this process's own.
func madeNamespace(pid, uid int) bool {
	made := false
	makers(pid, func(maker int) { made = made || maker == uid })
	return made
}

// Maker returns the user who made the outermost user namespace of a process that is below
// this process's own; ok is false of a process that is in no other one. All users that the
// process can become there are that one's.
func Maker(pid int) (uid int, ok bool) {
	makers(pid, func(maker int) { uid, ok = maker, true })
	return uid, ok
}

// makers tells of who made the user namespaces of a process up to this process's own, from
// the innermost on.
func makers(pid int, tell func(uid int)) {
	var own unix.Stat_t
	if unix.Stat("/proc/self/ns/user", &own) != nil {
		return
	}
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/ns/user", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	for err == nil {
		var stat unix.Stat_t
		if unix.Fstat(fd, &stat) != nil || stat.Ino == own.Ino {
			break
		}
		if owner, asked := unix.IoctlGetUint32(fd, unix.NS_GET_OWNER_UID); asked == nil {
			tell(int(owner))
		}
		// The kernel tells of no namespace around this process's own.
		var around int
		around, err = unix.IoctlRetInt(fd, unix.NS_GET_PARENT)
		_ = unix.Close(fd)
		fd = around
	}
	if err == nil {
		_ = unix.Close(fd)
	}
}
