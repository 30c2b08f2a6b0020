package vfio

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/divvy-gpu/divvy/internal/vm/binding"
)

// A function's type and the number of virtual functions tell the same whoever wrote them. Where an agent ended after it had
// written down that a step begins, the next one could not tell whether the step was made, or whether somebody else made the same
// one since. So the process that writes, which outlives the agent, leaves a receipt: a file that is there exactly while the step
// stands by it.

// receiptsFolder is beside the book.
const receiptsFolder = "vfio-receipts"

// receipt is the file of a step. A function is in one entry at a time, and each kind of step once in it.
func (b *Book) receipt(s binding.Step) string {
	return filepath.Join(filepath.Dir(b.config.Path), receiptsFolder, s.Device.String()+"-"+string(s.Kind))
}

// withReceipt is the write of a step that leaves a receipt, after an old one was taken away.
func (b *Book) withReceipt(s binding.Step) (binding.Write, error) {
	w := s.Do
	if !s.Alike {
		return w, nil
	}
	w.Leave = b.receipt(s)
	if err := os.MkdirAll(filepath.Dir(w.Leave), 0o700); err != nil {
		return w, fmt.Errorf("make a folder for receipts: %w", err)
	}
	if err := os.Remove(w.Leave); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return w, fmt.Errorf("take an old receipt away: %w", err)
	}
	return w, nil
}

// withoutReceipt is the undoing of a step that takes its receipt away.
func (b *Book) withoutReceipt(s binding.Step) binding.Write {
	w := s.Undo
	if s.Alike {
		w.Take = b.receipt(s)
	}
	return w
}

// isOurs tells whether what a step's state tells was made by the step.
func (b *Book) isOurs(s binding.Step) bool {
	if !s.Alike {
		return true
	}
	_, err := os.Stat(b.receipt(s))
	return err == nil
}

// unfinished is added to a receipt's name until the write was made: to rename it needs no room on the disk.
const unfinished = ".new"

// begun prepares the receipt of a write.
func begun(w binding.Write) error {
	if w.Leave == "" {
		return nil
	}
	file, err := os.OpenFile(w.Leave+unfinished, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("prepare a receipt: %w", err)
	}
	return file.Close()
}

// told leaves or takes the receipt of a write, whose error it returns.
func told(w binding.Write, err error) error {
	switch {
	case w.Leave != "" && err != nil:
		_ = os.Remove(w.Leave + unfinished) // the next one writes it anew
	case w.Leave != "":
		return os.Rename(w.Leave+unfinished, w.Leave)
	case w.Take != "" && err == nil:
		_ = os.Remove(w.Take) // what it tells of is not there any more
	}
	return err
}
