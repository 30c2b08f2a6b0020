package vfio

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// Host is the [Machine] whose files are below a folder.
type Host struct {
	// Root is where the machine's files are, "/" for this one.
	Root string
	// Program and Args start a process that calls [Main].
	Program string
	Args    []string
	// Wait is how long a file may take to be read that tells whether a step holds, 0 for as long as a step may wait for it.
	Wait time.Duration
}

var _ Machine = Host{}

func (h Host) path(name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", fmt.Errorf("find %q below sys: %w", name, fs.ErrInvalid)
	}
	return filepath.Join(h.Root, "sys", name), nil
}

// stateLimit is how long a step waits for what tells whether it holds.
const stateLimit = 10 * time.Second

// State implements [Machine].
func (h Host) State(s binding.State) (string, error) {
	name, err := h.path(s.Path)
	if err != nil {
		return "", err
	}
	var told string
	switch {
	case s.Mark:
		told, err = markOf(name)
	case s.Link:
		if told, err = os.Readlink(name); err == nil {
			return filepath.Base(told), nil
		}
	default:
		var content []byte
		content, err = filesFor(h.Root, cmp.Or(h.Wait, stateLimit)).ReadFile("sys/" + s.Path)
		told = strings.TrimSpace(string(content))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), told == "(null)":
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read what there is: %w", err)
	}
	return told, nil
}

// Exists implements [Machine].
func (h Host) Exists(path string) bool {
	name, err := h.path(path)
	if err != nil {
		return false
	}
	_, err = os.Stat(name)
	return err == nil
}

// Holders implements [Machine].
func (h Host) Holders(devices []pci.Address) (facts.Held, error) {
	return facts.Holders(Files(h.Root), devices)
}

// Start implements [Machine]. The process is in a session of its own and inherits nothing: one that sleeps in the kernel
// would keep whatever it has.
func (h Host) Start() (Writer, error) {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirIn.Close(), in.Close())
	}
	cmd := exec.Command(h.Program, append(append([]string{}, h.Args...), h.Root)...) //nolint:gosec // our own program
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/bin", "GOTRACEBACK=none"}
	cmd.Stdin, cmd.Stdout = theirIn, theirOut
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	err = errors.Join(err, theirIn.Close(), theirOut.Close())
	if err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	w := &writer{in: in, ended: make(chan struct{}), asked: make(chan chan<- error, 1)}
	w.id, err = process.Find(cmd.Process.Pid) // it is not waited for yet, so it is there
	go func() {
		_ = cmd.Wait() // however it ended, it is gone
		close(w.ended)
	}()
	go w.listen(out)
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// writer is a process that calls [Main].
type writer struct {
	id    process.ID
	in    *os.File
	ended chan struct{}
	// asked has the channel of the write that is being made.
	asked chan chan<- error
}

func (w *writer) ID() process.ID         { return w.id }
func (w *writer) Ended() <-chan struct{} { return w.ended }
func (w *writer) Close()                 { _ = w.in.Close() } // it ends when it reads no more

// Write implements [Writer].
func (w *writer) Write(write binding.Write) <-chan error {
	outcome := make(chan error, 1)
	w.asked <- outcome
	line, err := json.Marshal(write)
	if err == nil {
		_, err = w.in.Write(append(line, '\n'))
	}
	if err != nil { // it has ended, or is about to
		_ = w.in.Close()
	}
	return outcome
}

// listen passes answers on until the process has ended.
func (w *writer) listen(out *os.File) {
	defer out.Close()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var a answer
		err := json.Unmarshal(lines.Bytes(), &a)
		if err == nil {
			err = a.err()
		}
		select {
		case outcome := <-w.asked:
			outcome <- err
		default: // it says more than it was asked
		}
	}
}
