package process

import (
	"bytes"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Descendants returns the children of processes, their children, and so on.
func Descendants(pids ...int) []ID {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]ID{}
	for _, entry := range entries {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if s, err := read(child); err == nil && !s.dead {
			children[s.parent] = append(children[s.parent], ID{PID: child, Start: s.start})
		}
	}
	var found []ID
	for _, pid := range pids {
		found = append(found, children[pid]...)
		delete(children, pid)
	}
	for i := 0; i < len(found); i++ {
		next := found[i].PID
		found = append(found, children[next]...)
		delete(children, next) // the tree is read piecemeal and may have a loop
	}
	return found
}

// Of returns the living processes of a user.
func Of(uid int) []ID {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []ID
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || Owner(pid) != uid {
			continue
		}
		if s, err := read(pid); err == nil && !s.dead {
			found = append(found, ID{PID: pid, Start: s.start})
		}
	}
	return found
}

// Signal sends a signal to the process unless it has ended: the descriptor
// keeps the pid from naming another one in between.
func (id ID) Signal(signal syscall.Signal) error {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if !id.Alive() {
		return ErrGone
	}
	return unix.PidfdSendSignal(fd, signal, nil, 0)
}

// Owner returns the effective user of a process, -1 if there is no such process. The
// owner of its folder in /proc is another one where the process forbids core dumps.
func Owner(pid int) int {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return -1
	}
	return effectiveUser(status)
}

// effectiveUser is the second number in the line Uid of /proc/PID/status
// (proc_pid_status(5)), -1 where there is none.
func effectiveUser(status []byte) int {
	for line := range bytes.Lines(status) {
		numbers, ok := bytes.CutPrefix(line, []byte("Uid:"))
		fields := bytes.Fields(numbers)
		if !ok || len(fields) < 2 {
			continue
		}
		if uid, err := strconv.ParseUint(string(fields[1]), 10, 32); err == nil {
			return int(uid)
		}
	}
	return -1
}
