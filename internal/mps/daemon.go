package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
)

const (
	// startTime bounds how long a daemon may take until it answers, endTime how long it may take to end.
	startTime = 10 * time.Second
	endTime   = 10 * time.Second
	// killTime bounds how long processes that were killed may take to end.
	killTime = 5 * time.Second
	// poll is the pause between questions whether something has happened of which nobody gives notice.
	poll = 20 * time.Millisecond
)

// Find is the process that listens at the daemon's socket, [ErrAbsent] if there is none. The kernel tells who it is: the
// file with the daemon's pid may be written by everybody who can reach it.
func (d Daemon) Find() (process.ID, error) {
	pid, uid, err := listener(filepath.Join(d.Dirs.Pipe, controlSocket))
	if err != nil {
		return process.ID{}, err
	}
	if uid != os.Geteuid() {
		return process.ID{}, fmt.Errorf("%w: process %d of user %s listens at %s", ErrForeign, pid, process.UserName(uid), d.Dirs.Pipe)
	}
	id, err := process.Find(pid)
	if err != nil {
		return process.ID{}, fmt.Errorf("%w at %s: %w", ErrAbsent, d.Dirs.Pipe, err)
	}
	return id, nil
}

// Stranger is a daemon about which nothing is known but who runs it.
type Stranger struct {
	// PID is the process that listens in the pipe directory, and User the name of its user.
	PID        int
	User, Pipe string
}

// String names the daemon for people.
func (s Stranger) String() string {
	return fmt.Sprintf("process %d of user %s at %s", s.PID, s.User, s.Pipe)
}

// At is the daemon that listens in a pipe directory, whoever's it is; [ErrAbsent] if none does.
func At(pipe string) (Stranger, error) {
	pid, uid, err := listener(filepath.Join(pipe, controlSocket))
	if err != nil {
		return Stranger{}, err
	}
	return Stranger{PID: pid, User: process.UserName(uid), Pipe: pipe}, nil
}

// Left are the pipe directories below a directory of daemons, see [DirsOf].
func Left(dir string) []string {
	found, err := filepath.Glob(filepath.Join(dir, "*", "pipe"))
	if err != nil {
		return nil // the name of the directory has a pattern in it
	}
	return found
}

// listener tells who listens at a socket.
func listener(path string) (pid, uid int, err error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return 0, 0, fmt.Errorf("%w at %s", ErrAbsent, filepath.Dir(path))
	case err != nil:
		return 0, 0, fmt.Errorf("find the MPS control daemon: %w", err)
	}
	defer func() { _ = conn.Close() }()
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, fmt.Errorf("find the MPS control daemon: %w", err)
	}
	var peer *unix.Ucred
	var askErr error
	if err := raw.Control(func(fd uintptr) {
		peer, askErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || askErr != nil {
		return 0, 0, fmt.Errorf("find the MPS control daemon: %w", errors.Join(err, askErr))
	}
	return int(peer.Pid), int(peer.Uid), nil
}

// Start starts the daemon unless it runs, and returns its process when it answers. It outlives this process.
func (d Daemon) Start(ctx context.Context) (process.ID, error) {
	if err := d.Dirs.Make(); err != nil {
		return process.ID{}, err
	}
	if id, err := d.Find(); err == nil || !errors.Is(err, ErrAbsent) {
		return id, err
	}
	args := []string{"-d"}
	if d.MultiUser {
		args = append(args, "-multiuser-server")
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	var said bounded
	cmd := d.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return process.ID{}, fmt.Errorf("start an MPS control daemon: %w: %s", err, said.line())
	}
	return d.await(ctx)
}

// await waits until the daemon answers.
func (d Daemon) await(ctx context.Context) (process.ID, error) {
	ticks := time.NewTicker(poll)
	defer ticks.Stop()
	for {
		id, err := d.Find()
		if err == nil {
			if _, err = d.Percentage(ctx); err == nil {
				return id, nil
			}
		}
		if !errors.Is(err, ErrAbsent) {
			return process.ID{}, fmt.Errorf("start an MPS control daemon: %w", err)
		}
		select {
		case <-ctx.Done():
			return process.ID{}, fmt.Errorf("start an MPS control daemon: %w", err)
		case <-ticks.C:
		}
	}
}

// End ends the daemon and its servers, whoever are their clients, and returns when they are gone. One that does not answer
// is killed. That there is none is no error.
func (d Daemon) End(ctx context.Context) error {
	id, err := d.Find()
	if errors.Is(err, ErrAbsent) {
		return nil
	}
	if err != nil {
		return err
	}
	done, stop, err := id.Watch()
	if err != nil {
		return err
	}
	defer stop()
	family := append(process.Descendants(id.PID), id)
	// -t bounds how long the daemon waits for its servers, in seconds. The program that asks fails when servers had to
	// be ended by force, and the daemon ends all the same: what it says counts only if the daemon stays.
	d.Console = false
	said := d.release(ctx)
	if said == nil {
		_, said = d.ask(ctx, "quit -t %d", int(endTime.Seconds())/2)
	}
	if errors.Is(said, ErrSilent) {
		// ctx may be about to end, and a stopped daemon would outlive whoever gave up on it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
		defer cancel()
		return killAll(ctx, family)
	}
	late := time.NewTimer(endTime)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		if said != nil && !errors.Is(said, ErrAbsent) {
			return fmt.Errorf("end the MPS control daemon: %w", said)
		}
	case <-ctx.Done():
		return fmt.Errorf("end the MPS control daemon: %w", ctx.Err())
	}
	return killAll(ctx, family)
}

// killAll kills those of some processes that live, and returns when they are gone.
func killAll(ctx context.Context, family []process.ID) error {
	for _, id := range family {
		if err := id.Signal(syscall.SIGKILL); err != nil && id.Alive() {
			return fmt.Errorf("end the MPS control daemon: %w", err)
		}
	}
	for _, id := range family {
		done, stop, err := id.Watch()
		if err != nil {
			return fmt.Errorf("end the MPS control daemon: %w", err)
		}
		select {
		case <-done:
			stop()
		case <-ctx.Done():
			stop()
			return fmt.Errorf("end the MPS control daemon: %w", ctx.Err())
		}
	}
	return nil
}
