package process

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrForeign is returned for a process that belongs to another user.
var ErrForeign = errors.New("it belongs to another user")

// Signal sends a signal to the process unless it has ended: the descriptor
// keeps the pid from naming another one in between.
func (id ID) Signal(signal syscall.Signal) error {
	return id.SignalIf(signal, func(ID) bool { return true })
}

// SignalIf is Signal for a process that may be signalled; else it returns [ErrForeign].
// It asks after it has the descriptor: if the process ends meanwhile, and the answer is of
// another one, the signal reaches nobody.
func (id ID) SignalIf(signal syscall.Signal, may func(ID) bool) error {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if err != nil {
		return fmt.Errorf("signal process %d: %w", id.PID, err)
	}
	defer unix.Close(fd)
	if !id.Alive() {
		return ErrGone
	}
	if !may(id) {
		return fmt.Errorf("signal process %d: %w", id.PID, ErrForeign)
	}
	return unix.PidfdSendSignal(fd, signal, nil, 0)
}
