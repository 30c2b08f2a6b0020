// Package process identifies processes and notices their end, by /proc and pid file
// descriptors.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// ErrGone is returned for a process that no longer exists.
var ErrGone = errors.New("no such process")

// ID identifies one process forever; the kernel reuses a pid alone.
type ID struct {
	PID int `json:"pid"`
	// Start is in clock ticks after boot.
	Start uint64 `json:"start"`
}

// stat is what /proc/PID/stat tells.
type stat struct {
	parent  int
	session int
	start   uint64
	dead    bool
	stopped bool
	// exiting is whether the thread has begun to end, and runs nothing but the kernel's own code.
	exiting bool
}

// Find returns the ID of the process that has a pid now.
func Find(pid int) (ID, error) {
	s, err := read(pid)
	if err != nil {
		return ID{}, err
	}
	return ID{PID: pid, Start: s.start}, nil
}

// Alive reports whether the process still runs; a zombie does not.
func (id ID) Alive() bool {
	s, err := read(id.PID)
	return err == nil && s.start == id.Start && !s.dead
}

// Stopped reports whether the process of a pid is stopped, by a signal or a debugger.
func Stopped(pid int) bool {
	s, err := read(pid)
	return err == nil && s.stopped
}

// ticks is how many clock ticks a second has wherever the kernel tells of them (USER_HZ).
const ticks = 100

// Started is when the process started.
func (id ID) Started() time.Time {
	now, up := time.Now(), Uptime()
	if up == 0 {
		return now
	}
	return now.Add(time.Duration(id.Start)*(time.Second/ticks) - up)
}

// Uptime is for how long the machine has run, 0 where that is not known.
func Uptime() time.Duration {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return 0
	}
	return time.Duration(up.Nano())
}

// Ancestors returns the pids of a process's parents, the nearest first.
func Ancestors(pid int) []int {
	var parents []int
	for range 64 { // a bound, because the tree may change meanwhile
		s, err := read(pid)
		if err != nil || s.parent <= 0 {
			break
		}
		parents = append(parents, s.parent)
		pid = s.parent
	}
	return parents
}

// statSize is more than proc_pid_stat(5) ever has: a name of at most 64 bytes and
// some 50 numbers.
const statSize = 2048

func read(pid int) (stat, error) {
	var data [statSize]byte
	text, err := beginningOf(pid, "stat", data[:])
	if err != nil {
		return stat{}, err
	}
	return parse(text)
}

// beginningOf reads a file of /proc/PID into data, as far as it has room. It is called some hundred times a second where as
// many processes are on GPUs, so it makes no more system calls than it has to.
func beginningOf(pid int, name string, data []byte) ([]byte, error) {
	file, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: pid %d", ErrGone, pid)
	}
	n, err := unix.Read(file, data)
	if closed := unix.Close(file); err != nil || closed != nil {
		return nil, fmt.Errorf("%w: pid %d", ErrGone, pid)
	}
	return data[:n], nil
}

// flagExiting is PF_EXITING of the kernel (include/linux/sched.h), the same since Linux 2.6.
const flagExiting = 0x4

// parse reads the fields after the program's name, which may itself contain
// blanks and parentheses (proc_pid_stat(5): fields 3, 4, 6, 9, 20 and 22).
func parse(data []byte) (stat, error) {
	_, rest, found := cutLast(data, ')')
	fields := bytes.Fields(rest)
	if !found || len(fields) < 20 {
		return stat{}, fmt.Errorf("read process: %d fields", len(fields))
	}
	parent, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return stat{}, fmt.Errorf("read process: %w", err)
	}
	session, err := strconv.Atoi(string(fields[3]))
	if err != nil {
		return stat{}, fmt.Errorf("read process: %w", err)
	}
	start, err := strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("read process: %w", err)
	}
	flags, err := strconv.ParseUint(string(fields[6]), 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("read process: %w", err)
	}
	// A leader that has ended while other threads of it run is a zombie too.
	state, threads := fields[0][0], string(fields[17])
	dead := state == 'X' || state == 'Z' && (threads == "0" || threads == "1")
	return stat{
		parent: parent, session: session, start: start, dead: dead, stopped: state == 'T' || state == 't',
		exiting: flags&flagExiting != 0 || state == 'X' || state == 'Z',
	}, nil
}

func cutLast(data []byte, sep byte) (before, after []byte, found bool) {
	i := bytes.LastIndexByte(data, sep)
	if i < 0 {
		return data, nil, false
	}
	return data[:i], data[i+1:], true
}

// Watch returns a channel that is closed when the process has ended, at once
// if it has already. stop ends the watch.
func (id ID) Watch() (done <-chan struct{}, stop func(), err error) {
	closed := make(chan struct{})
	fd, err := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	switch {
	case errors.Is(err, unix.ESRCH) || err == nil && !id.Alive():
		if err == nil {
			err = unix.Close(fd)
		} else {
			err = nil
		}
		close(closed)
		return closed, func() {}, err
	case err != nil:
		return nil, nil, fmt.Errorf("watch process %d: %w", id.PID, err)
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("watch process %d: %w", id.PID, err), file.Close())
	}
	go func() {
		// The descriptor becomes readable when the process ends (pidfd_open(2)).
		ended := false
		_ = conn.Read(func(uintptr) bool {
			ended = !id.Alive()
			return ended
		})
		if ended {
			close(closed)
		}
		file.Close()
	}()
	return closed, func() { _ = file.SetReadDeadline(time.Unix(1, 0)) }, nil
}
