// Package mps starts, asks and ends the control daemons of NVIDIA's MPS, one for each GPU.
//
// The protocol of a daemon's socket is not documented, so every command goes through NVIDIA's own program,
// nvidia-cuda-mps-control, in a process that is killed when it takes long. The program says what is wrong with a command
// in the daemon's log and not in its answer, and repeats the old value instead. Whoever sets something therefore asks
// for it afterwards. What the drivers 535 to 555 answer was tried with these programs themselves.
//
// Which daemon answers at a socket is not read from the file with its pid, which the daemon leaves writable for everybody,
// but asked of the kernel, see [Daemon.Find].
package mps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// The programs, as the driver's packages name them. The first starts the second, which it looks for on its PATH.
const (
	ControlProgram = "nvidia-cuda-mps-control"
	ServerProgram  = "nvidia-cuda-mps-server"
)

// The errors of this package.
var (
	// ErrAbsent says that no daemon answers.
	ErrAbsent = errors.New("no MPS control daemon")
	// ErrSilent says that the daemon did not answer in time.
	ErrSilent = errors.New("the MPS control daemon does not answer")
	// ErrAnswer says that the answer is none to the question.
	ErrAnswer = errors.New("the MPS control daemon gives no valid answer")
	// ErrUnknownCommand says that the daemon's version lacks a command.
	ErrUnknownCommand = errors.New("the MPS control daemon does not know the command")
	// ErrNoServer says that a server has ended.
	ErrNoServer = errors.New("no such MPS server")
	// ErrDirectory marks a directory in which no daemon can be.
	ErrDirectory = errors.New("no directory for an MPS control daemon")
	// ErrForeign marks a daemon that somebody else started.
	ErrForeign = errors.New("the MPS control daemon is not ours")
)

// Dirs is where a daemon is reached. Whoever can open the pipe directory can become its client.
type Dirs struct {
	// Pipe has the daemon's sockets, Log its log files.
	Pipe, Log string
}

// shortUUID is how much of a GPU's UUID names its directory, in bytes. The path of a socket must be short, and the first
// digits of UUIDs are drawn by chance.
const shortUUID = len("GPU-01234567")

// DirsOf is where the daemon of a GPU is, below a directory.
func DirsOf(dir, uuid string) Dirs {
	of := filepath.Join(dir, uuid[:min(len(uuid), shortUUID)])
	return Dirs{Pipe: filepath.Join(of, "pipe"), Log: filepath.Join(of, "log")}
}

// DefaultPipe is the pipe directory of programs and daemons that are told no other.
const DefaultPipe = "/tmp/nvidia-mps"

const (
	// controlSocket is the socket of clients and of unprivileged commands, privilegedSocket that of the daemon's user.
	controlSocket    = "control"
	privilegedSocket = "control_privileged"
	// longestSocket is how long the path of a socket may be (unix(7)), without the zero that ends it.
	longestSocket = 107
	// open is the mode of the directories: other users are clients, and only the daemon's user writes.
	open = 0o755
)

// Make makes the directories, in one that only this user passes until [Dirs.Admit]. One that exists must be a directory of this user's in which nobody else can write:
// in another's, clients could be led to another daemon.
func (p Dirs) Make() error {
	if err := p.check(); err != nil {
		return err
	}
	for _, dir := range []string{p.Pipe, p.Log} {
		if err := makeAbove(filepath.Dir(dir)); err != nil {
			return fmt.Errorf("%w: %w", ErrDirectory, err)
		}
		if err := os.Mkdir(dir, open); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("%w: %w", ErrDirectory, err)
		}
		if err := own(dir); err != nil {
			return err
		}
	}
	return nil
}

// mostMakes bounds how often a directory is made again whose parent vanishes.
const mostMakes = 100

// makeAbove makes the directory that only this user passes, and those above it. Whoever ends the last daemon of another
// GPU removes the directory of all daemons if it is empty, also in the moment before this one is in it.
func makeAbove(dir string) (err error) {
	for range mostMakes {
		if err := os.MkdirAll(filepath.Dir(dir), open); err != nil {
			return err
		}
		if err = os.Mkdir(dir, private); !errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

// Remove removes them with what a daemon left there, and the directory that [DirsOf] has them in. No daemon may run. What
// is not this user's alone is left, and is an error.
func (p Dirs) Remove() error {
	for _, dir := range []string{p.Pipe, p.Log} {
		if err := own(dir); errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove the directories of an MPS control daemon: %w", err)
		}
	}
	if dir := filepath.Dir(p.Pipe); dir == filepath.Dir(p.Log) {
		if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
			return fmt.Errorf("remove the directories of an MPS control daemon: %w", err)
		}
	}
	return nil
}

// check tells of names that a daemon cannot have.
func (p Dirs) check() error {
	for _, dir := range []string{p.Pipe, p.Log} {
		if !filepath.IsAbs(dir) || strings.ContainsAny(dir, "\n\x00") {
			return fmt.Errorf("%w: %q is no absolute path", ErrDirectory, dir)
		}
	}
	if path := filepath.Join(p.Pipe, privilegedSocket); len(path) > longestSocket {
		return fmt.Errorf("%w: %s has %d bytes, and the path of a socket has at most %d: use a shorter run directory",
			ErrDirectory, path, len(path), longestSocket)
	}
	return nil
}

// own tells whether a directory is this user's alone to change.
func own(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%w: %s is no directory", ErrDirectory, dir)
	case !ok || int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%w: %s belongs to another user", ErrDirectory, dir)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%w: others can write to %s: run chmod go-w", ErrDirectory, dir)
	}
	return nil
}
