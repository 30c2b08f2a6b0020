//go:build linux

// The first program of the guest: mounts what programs expect, loads the kernel's modules, runs the one program that
// /task.json names, tells its output and exit status on the wire, and turns the machine off.
package main

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/test/vm/kit"
	"github.com/divvy-gpu/divvy/test/vm/task"
	"github.com/divvy-gpu/divvy/test/vm/wire"
)

func main() {
	line := &port{}
	status := serve(line)
	line.close(status)
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// serve returns the exit status of the task, or 1 where it could not be run; then it has said why.
func serve(line *port) int {
	if err := mounted(); err != nil {
		return line.problem(err)
	}
	if err := line.open("/dev/ttyS1"); err != nil {
		return line.problem(err)
	}
	if err := tokened(); err != nil {
		return line.problem(err)
	}
	if err := loaded(kit.Order); err != nil {
		return line.problem(err)
	}
	if err := looped(); err != nil {
		return line.problem(err)
	}
	t, err := task.Read(kit.Task)
	if err != nil {
		return line.problem(err)
	}
	_ = wire.Write(line, wire.Ready, nil)
	status, err := run(t, line)
	if err != nil {
		return line.problem(err)
	}
	return status
}

// port is the serial port of the wire, to which two streams write.
type port struct {
	lock sync.Mutex
	file *os.File
}

func (p *port) open(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOCTTY, 0) //nolint:gosec // the guest's own port
	if err != nil {
		return fmt.Errorf("open the wire: %w", err)
	}
	fd := int(file.Fd())
	settings, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return fmt.Errorf("read the settings of the wire: %w", err)
	}
	// Every byte goes out as it is.
	settings.Oflag &^= unix.OPOST
	settings.Lflag &^= unix.ECHO | unix.ICANON
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, settings); err != nil {
		return fmt.Errorf("set up the wire: %w", err)
	}
	p.file = file
	return nil
}

// Write writes a whole frame, and no other in between.
func (p *port) Write(b []byte) (int, error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.file.Write(b)
}

// problem says an error on the wire, or on the console where there is no wire yet, and returns the status for it.
func (p *port) problem(err error) int {
	if p.file == nil {
		fmt.Println("init:", err)
		return 1
	}
	_ = wire.Write(p, wire.Problem, []byte(err.Error()))
	return 1
}

// close sends the last frame and waits until the port has sent it.
func (p *port) close(status int) {
	if p.file == nil {
		return
	}
	_ = wire.Write(p, wire.Result, []byte{byte(status)}) //nolint:gosec // an exit status
	const drained = 1
	_ = unix.IoctlSetInt(int(p.file.Fd()), unix.TCSBRK, drained)
}
