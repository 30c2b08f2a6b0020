package vfio

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/vm/binding"
)

// Command is the program's hidden command that calls [Main], with the root of the machine's files.
const Command = "vm-writer"

// answer is what a writer says of a write.
type answer struct {
	// Number is the kernel's error number, 0 for none. Text is an error without one. Open is that somebody has a device open.
	Number syscall.Errno `json:"number,omitempty"`
	Text   string        `json:"text,omitempty"`
	Open   bool          `json:"open,omitempty"`
	// Unseen is that nobody can tell whether somebody has.
	Unseen bool `json:"unseen,omitempty"`
}

func (a answer) err() error {
	switch {
	case a.Open:
		return ErrOpen
	case a.Unseen:
		return ErrUnseen
	case a.Text != "":
		return errors.New(a.Text)
	case a.Number != 0:
		return a.Number
	}
	return nil
}

// Main makes the writes that it reads from its standard input, one in a line, and answers each in a line of its standard
// output. It ends when there are no more, so also when who asks has ended.
func Main(root string) error { return MainBySteps(root, func(string) {}) }

// MainBySteps is [Main], and calls a function after each step of a write: when it is marked, made, and told by its receipt.
// Tests end the process there.
func MainBySteps(root string, step func(string)) error {
	drop()
	return serve(root, os.Stdin, os.Stdout, step)
}

// drop closes whatever a library of the starter's has left open: a process that sleeps in the kernel keeps what it has, and
// if that is the device, it waits for itself.
func drop() {
	const first = 3
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, entry := range entries {
		number, err := strconv.Atoi(entry.Name())
		if err != nil || number < first {
			continue
		}
		// The runtime's own are left: its poller, and its cgroup's file.
		target, err := os.Readlink("/proc/self/fd/" + entry.Name())
		if err != nil || strings.HasPrefix(target, "anon_inode:") || strings.HasPrefix(target, "/sys/fs/cgroup/") {
			continue
		}
		_ = unix.Close(number)
	}
}

func serve(root string, in io.Reader, out io.Writer, step func(string)) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var w binding.Write
		err := json.Unmarshal(lines.Bytes(), &w)
		if err == nil {
			err = write(root, w, step)
		}
		a := answer{Open: errors.Is(err, ErrOpen), Unseen: errors.Is(err, ErrUnseen)}
		if !errors.As(err, &a.Number) && err != nil {
			a.Text = err.Error()
		}
		line, err := json.Marshal(a)
		if err != nil {
			return err
		}
		if _, err := out.Write(append(line, '\n')); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
	return lines.Err()
}

// write writes a file of sysfs in one call, and makes none.
func write(root string, w binding.Write, step func(string)) error {
	if !fs.ValidPath(w.Path) {
		return fmt.Errorf("write %q below sys: %w", w.Path, fs.ErrInvalid)
	}
	group, err := shut(root, w.Group)
	if err != nil {
		return err
	}
	defer group.Close()
	name := filepath.Join(root, "sys", w.Path)
	if err := begun(w, name); err != nil {
		return err
	}
	step("marked")
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteString(w.Value)
		err = errors.Join(err, file.Close())
	}
	step("made")
	err = told(w, err)
	step("told")
	return err
}
