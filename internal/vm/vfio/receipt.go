package vfio

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/divvy-gpu/divvy/internal/vm/binding"
)

// A function's type and the number of virtual functions tell the same whoever wrote them. Where an agent ended after it had
// written down that a step begins, the next one could not tell whether the step was made, or whether somebody else made the same
// one since. So the process that writes, which outlives the agent, leaves a receipt: a file that is there exactly while the step
// stands by it.
//
// That process may be killed as well, together with the agent. So before it writes, it leaves an unfinished receipt with a mark: a
// time of its own choosing, which it gives the file of sysfs as that of its last change. The kernel's own writing keeps that time.
// Whoever opens the file as a shell does, to replace what it has, changes it. So as long as the mark is on the file, what is
// there is by the process that marked it.

// receiptsFolder is beside the book.
const receiptsFolder = "vfio-receipts"

// unfinished is added to a receipt's name until the write was made: to rename it needs no room on the disk.
const unfinished = ".new"

// receipt is what the file of a step says. An empty one is finished, and has no owner.
type receipt struct {
	Owner string `json:"owner,omitempty"`
	// Mark is what [binding.State] tells of the step's file with Mark set, while the write is not known to be made.
	Mark string `json:"mark,omitempty"`
}

// receipt is the file of a step. A function is in one entry at a time, and each kind of step once in it.
func (b *Book) receipt(s binding.Step) string {
	return filepath.Join(filepath.Dir(b.config.Path), receiptsFolder, s.Device.String()+"-"+string(s.Kind))
}

// withReceipt is the write of a step that leaves a receipt, after old ones were taken away.
func (b *Book) withReceipt(owner string, s binding.Step) (binding.Write, error) {
	w := s.Do
	if !s.Alike {
		return w, nil
	}
	w.Leave, w.Owner = b.receipt(s), owner
	if err := os.MkdirAll(filepath.Dir(w.Leave), 0o700); err != nil {
		return w, fmt.Errorf("make a folder for receipts: %w", err)
	}
	for _, old := range []string{w.Leave, w.Leave + unfinished} {
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return w, fmt.Errorf("take an old receipt away: %w", err)
		}
	}
	return w, nil
}

// withoutReceipt is the undoing of a step that takes its receipt away.
func (b *Book) withoutReceipt(owner string, s binding.Step) binding.Write {
	w := s.Undo
	if s.Alike {
		w.Take, w.Owner = b.receipt(s), owner
	}
	return w
}

// isOurs tells whether what a step's state tells was made by the step for its owner.
func (b *Book) isOurs(owner string, s binding.Step) bool {
	if !s.Alike {
		return true
	}
	if r, there := readReceipt(b.receipt(s)); there {
		return r.Owner == "" || r.Owner == owner
	}
	r, there := readReceipt(b.receipt(s) + unfinished)
	if !there || r.Owner != owner || r.Mark == "" {
		return false
	}
	mark, err := b.config.Machine.State(binding.State{Path: s.State.Path, Mark: true})
	return err == nil && mark == r.Mark
}

func readReceipt(name string) (r receipt, there bool) {
	content, err := os.ReadFile(name) //nolint:gosec // beside the book
	if err == nil && len(content) > 0 {
		err = json.Unmarshal(content, &r)
	}
	return r, err == nil
}

// begun prepares the receipt of a write to a file, or has the one that is there doubted until the write was made.
func begun(w binding.Write, file string) error {
	name := w.Leave + w.Take
	if name == "" {
		return nil
	}
	r := receipt{Owner: w.Owner, Mark: mark(file)}
	if w.Take != "" && r.Mark == "" {
		return nil // what is there is taken for the owner's until it is cleared
	}
	content, err := json.Marshal(r)
	if err == nil {
		err = os.WriteFile(name+unfinished, content, 0o600)
	}
	if err == nil && w.Take != "" {
		err = os.Remove(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("prepare a receipt: %w", err)
	}
	return nil
}

// told leaves or takes the receipt of a write, whose error it returns.
func told(w binding.Write, err error) error {
	switch made := err == nil; {
	case w.Leave != "" && !made, w.Take != "" && made:
		_ = os.Remove(w.Leave + w.Take + unfinished) // what it tells of is not there
		if w.Take != "" {
			_ = os.Remove(w.Take)
		}
	case w.Leave != "", w.Take != "":
		_ = os.Rename(w.Leave+w.Take+unfinished, w.Leave+w.Take) // where it cannot be, its mark tells
	}
	return err
}

// mark gives a file a time of its last change that nobody else would, and returns it, or "" where a file keeps none.
func mark(file string) string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // it does not fail
	const past = 1 << 60        // nanoseconds: before 2007, when no machine of today ran
	at := time.Unix(0, int64(binary.LittleEndian.Uint64(random[:])%past))
	if err := os.Chtimes(file, at, at); err != nil {
		return ""
	}
	found, err := markOf(file)
	if err != nil {
		return ""
	}
	return found
}

// markOf is when a file was last changed, in words.
func markOf(file string) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(info.ModTime().UnixNano(), 10), nil
}
