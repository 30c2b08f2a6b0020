// Package terminal tells people something where a program of theirs writes its errors, if that is a terminal, a pipe or a file.
//
// Whatever that is belongs to its user, who can make every question about it and every write to it wait for ever. So a
// process of its own asks and writes, which is killed when it takes long, and of which each user has one at most.
package terminal

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
)

// Command is the argument with which divvy becomes the process that writes, see [Main].
const Command = "tell"

// errorsFD is where a program writes its errors.
const errorsFD = 2

// nobody is the group of who writes to a file.
const nobody = 65534

// longest is how many bytes a line may have: a pipe takes so many at once or not at all (PIPE_BUF).
const longest = 4096

// Main is the life of the process that writes; args are the pid, the start, the user and the line as a [Writer] gives them.
func Main(args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("tell a process: %d arguments", len(args))
	}
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return fmt.Errorf("tell a process: %w", err)
	}
	start, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		return fmt.Errorf("tell a process: %w", err)
	}
	uid, err := strconv.Atoi(args[2])
	if err != nil {
		return fmt.Errorf("tell a process: %w", err)
	}
	return tell(process.ID{PID: pid, Start: start}, uid, args[3])
}

// tell writes a line to where a user's process writes its errors. Where there is no room now it writes nothing.
func tell(id process.ID, uid int, line string) error {
	fd, err := borrow(id)
	if err != nil {
		return fmt.Errorf("tell process %d: %w", id.PID, err)
	}
	defer unix.Close(fd)
	text := line + "\n"
	switch kind, err := kindOf(fd); {
	case err != nil:
		return fmt.Errorf("tell process %d: %w", id.PID, err)
	case kind == other:
		return nil
	case kind == file:
		// What a file does with a write may depend on who writes, as in /proc: it is the user, not root.
		if err := become(uid); err != nil {
			return fmt.Errorf("tell process %d: %w", id.PID, err)
		}
	case kind == screen:
		// The cursor may be in the middle of a line, and the terminal may not begin lines by itself.
		text = "\r\n" + line + "\r\n"
	}
	room := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(room, 0)
	if err != nil || n == 0 || room[0].Revents&unix.POLLOUT == 0 || len(text) > longest {
		return err
	}
	// The file is shared with the program, so it is not made to refuse instead of waiting: this process waits then, and
	// is killed.
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		return fmt.Errorf("tell process %d: %w", id.PID, err)
	}
	return nil
}

// borrow takes the descriptor of a process's errors, with the rights that the process has to it. Where the kernel lets
// nobody take it the user's own process opens the same file, which it could do in any case.
func borrow(id process.ID) (int, error) {
	owner, err := unix.PidfdOpen(id.PID, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(owner)
	if !id.Alive() {
		return -1, process.ErrGone
	}
	fd, err := unix.PidfdGetfd(owner, errorsFD, 0)
	if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 && process.Owner(id.PID) == os.Geteuid() {
		return unix.Open(fmt.Sprintf("/proc/%d/fd/%d", id.PID, errorsFD), unix.O_WRONLY|unix.O_APPEND|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	}
	return fd, err
}

// become gives up what root may and the user may not. Another than root changes nothing.
func become(uid int) error {
	if os.Geteuid() != 0 || uid == 0 {
		return nil
	}
	return errors.Join(unix.Setgroups(nil), unix.Setresgid(nobody, nobody, nobody), unix.Setresuid(uid, uid, uid))
}

// kind is what a descriptor leads to.
type kind int

const (
	other kind = iota // a socket, a device, or nothing that may be written to
	screen
	pipe
	file
)

func kindOf(fd int) (kind, error) {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return other, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return other, err
	}
	if flags&unix.O_ACCMODE == unix.O_RDONLY || flags&unix.O_PATH != 0 {
		return other, nil
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		return pipe, nil
	case unix.S_IFREG:
		return file, nil
	case unix.S_IFCHR:
		if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
			return screen, nil
		}
	}
	return other, nil
}
