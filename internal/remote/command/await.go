package command

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

const (
	// attendMost is how long an attendant may take to end what is left of a command, and itself.
	attendMost = leaveMost + 2*time.Second
	// killMost is how long the kernel may take to end an attendant. One that waits for a file server is left.
	killMost = 2 * time.Second
)

// Refusal is why a command does not begin, as its client hears it.
func Refusal(err error) *wire.Refused {
	refused := new(wire.Refused)
	if errors.As(err, &refused) {
		return refused
	}
	return &wire.Refused{Code: wire.CodeHost, Text: err.Error()}
}

// await waits for an attendant whose line has ended. It is of the command's user, so the command may have stopped or killed it:
// then this process ends what is left. Its status tells nothing.
func await(attendant *exec.Cmd, id process.ID) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = attendant.Wait() // see above
	}()
	if !within(over, attendMost) {
		killAll(func() []process.ID { return process.Descendants(id.PID) })
		_ = id.Signal(syscall.SIGKILL) // as below
		within(over, killMost)
	}
	endSession(id)
}

// endSession ends what is in the session of an attendant that has ended, and what descends from that.
func endSession(id process.ID) {
	killAll(func() []process.ID {
		left := process.InSession(id)
		pids := make([]int, len(left))
		for i, one := range left {
			pids[i] = one.PID
		}
		return append(left, process.Descendants(pids...)...)
	})
}

// killAll kills processes until there are none, or a while later.
func killAll(find func() []process.ID) {
	for most := time.Now().Add(killMost); time.Now().Before(most); <-time.After(leavePause) {
		left := find()
		if len(left) == 0 {
			return
		}
		for _, one := range left {
			_ = one.Signal(syscall.SIGKILL) // it may have ended
		}
	}
}

// within reports whether something is over in time.
func within(over <-chan struct{}, most time.Duration) bool {
	select {
	case <-over:
		return true
	case <-time.After(most):
		return false
	}
}

// checked returns why a client's command makes no sense.
func checked(c wire.Command) error {
	switch {
	case len(c.Args) == 0 || c.Args[0] == "":
		return errors.New("there is no command")
	case !filepath.IsAbs(string(c.Directory.Path)):
		return errors.New("there is no directory")
	case slices.ContainsFunc(append(slices.Clone(c.Args), c.Env...), func(s string) bool { return strings.ContainsRune(s, 0) }):
		return errors.New("a word of the command has a zero byte")
	case slices.ContainsFunc(c.Terminals, func(stream int) bool { return stream < 0 || stream > 2 }):
		return errors.New("a terminal is none of the streams 0, 1 and 2")
	}
	return nil
}

// errEarly is an attendant that ended by itself. It tells each reason for that but one: that it got no more threads.
var errEarly = errors.New("start the command: its attendant ended before the command began: let its user have more processes and threads there (`ulimit -u`)")

// early is why an attendant that was to start a command cannot be spoken with.
func early(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return errEarly
	}
	return fmt.Errorf("start the command: speak with its attendant: %w", err)
}
