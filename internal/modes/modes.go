// Package modes keeps a book of what Divvy changes about GPUs themselves, such as their compute mode, so that it is put
// back when it is needed no more.
//
// A change is written down before it is made, with what was there before, and crossed out after that was put back. An
// agent that ends between any two steps thus leaves a book from which the next one knows what is to be put back. What
// somebody else changed meanwhile is left as they made it.
package modes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/checkpoint"
)

// ErrUnknown is returned by a [Device] that cannot tell a mode.
var ErrUnknown = errors.New("the driver does not tell this mode")

// ErrKept says that a mode did not take the value that it was given.
var ErrKept = errors.New("the GPU kept its mode")

// Mode is what can be changed about a GPU.
type Mode string

// The modes, with their values.
const (
	// ComputeMode is default, exclusive-process or prohibited, as NVML has it.
	ComputeMode Mode = "compute-mode"
	// TimeSlice is the length of the driver's time slices: default, short, medium or long. The driver does not tell it.
	TimeSlice Mode = "time-slice"
)

// usual are the values that modes have where the driver cannot tell.
var usual = map[Mode]string{ComputeMode: "default", TimeSlice: "default"}

// Device reads and changes the modes of GPUs, which UUIDs name.
type Device interface {
	// Mode returns the value that a mode has, [ErrUnknown] where that cannot be told.
	Mode(ctx context.Context, gpu string, mode Mode) (string, error)
	SetMode(ctx context.Context, gpu string, mode Mode, value string) error
}

// Change is one change of a GPU's mode.
type Change struct {
	GPU  string `json:"gpu"`
	Mode Mode   `json:"mode"`
	// Before is the value to put back.
	Before string `json:"before"`
	// Given are the values that it was given, the last one last. An agent may have ended before it made the last change.
	Given []string `json:"given"`
}

// last is the value that the mode should have.
func (c Change) last() string { return c.Given[len(c.Given)-1] }

// Foreign is a mode that somebody else changed after Divvy did.
type Foreign struct {
	Change
	// Found is the value that it has now.
	Found string
}

// Book keeps the changes of one machine. It is not safe for concurrent use.
type Book struct {
	device  Device
	file    *checkpoint.File[[]Change]
	changes []Change
	// step is called after each step, so that a test can end there.
	step func(name string) error
}

// Open reads the book at a path. A file that does not exist is an empty book.
func Open(path string, device Device) (*Book, error) {
	b := &Book{device: device, file: checkpoint.NewFile[[]Change](path, "modes", 1), step: func(string) error { return nil }}
	var err error
	if b.changes, err = b.file.Load(); err != nil {
		return nil, fmt.Errorf("read which modes of GPUs were changed: %w", err)
	}
	if slices.ContainsFunc(b.changes, func(c Change) bool { return len(c.Given) == 0 }) {
		return nil, fmt.Errorf("read which modes of GPUs were changed: %w: a change without a value", checkpoint.ErrDamaged)
	}
	return b, nil
}

// Changes are those in the book.
func (b *Book) Changes() []Change {
	return slices.Clone(b.changes)
}

// Set gives a GPU's mode a value, and is sure of it when it returns nil. What was there before the first change is what
// [Book.PutBack] puts back.
func (b *Book) Set(ctx context.Context, gpu string, mode Mode, value string) error {
	found, err := b.value(ctx, gpu, mode)
	if err != nil {
		return err
	}
	at := b.find(gpu, mode)
	if at < 0 && found == value {
		return nil
	}
	next := slices.Clone(b.changes)
	if at < 0 {
		next = append(next, Change{GPU: gpu, Mode: mode, Before: found, Given: []string{value}})
	} else {
		given := slices.DeleteFunc(slices.Clone(next[at].Given), func(g string) bool { return g == value })
		next[at].Given = slices.Concat(given, []string{value})
	}
	if err := b.save(next, "recorded"); err != nil {
		return err
	}
	return b.give(ctx, gpu, mode, value)
}

// PutBack undoes all changes of a GPU. Modes that somebody else has changed since are left alone and returned.
func (b *Book) PutBack(ctx context.Context, gpu string) ([]Foreign, error) {
	var foreign []Foreign
	for _, change := range slices.Backward(b.Changes()) {
		if change.GPU != gpu {
			continue
		}
		found, err := b.device.Mode(ctx, gpu, change.Mode)
		switch {
		case errors.Is(err, ErrUnknown), err == nil && slices.Contains(change.Given, found):
			if err := b.give(ctx, gpu, change.Mode, change.Before); err != nil {
				return foreign, err
			}
		case err != nil:
			return foreign, fmt.Errorf("read the %s of %s: %w", change.Mode, gpu, err)
		case found != change.Before:
			foreign = append(foreign, Foreign{Change: change, Found: found})
		}
		rest := slices.DeleteFunc(b.Changes(), func(c Change) bool { return c.GPU == gpu && c.Mode == change.Mode })
		if err := b.save(rest, "crossed-out"); err != nil {
			return foreign, err
		}
	}
	return foreign, nil
}

// Check returns the modes of a GPU that are not as Divvy made them.
func (b *Book) Check(ctx context.Context, gpu string) ([]Foreign, error) {
	var foreign []Foreign
	for _, change := range b.changes {
		if change.GPU != gpu {
			continue
		}
		found, err := b.device.Mode(ctx, gpu, change.Mode)
		if errors.Is(err, ErrUnknown) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the %s of %s: %w", change.Mode, gpu, err)
		}
		if found != change.last() {
			foreign = append(foreign, Foreign{Change: change, Found: found})
		}
	}
	return foreign, nil
}

// value is what a mode has, or what it usually has where the driver cannot tell.
func (b *Book) value(ctx context.Context, gpu string, mode Mode) (string, error) {
	found, err := b.device.Mode(ctx, gpu, mode)
	if errors.Is(err, ErrUnknown) {
		if at := b.find(gpu, mode); at >= 0 {
			return b.changes[at].last(), nil
		}
		return usual[mode], nil
	}
	if err != nil {
		return "", fmt.Errorf("read the %s of %s: %w", mode, gpu, err)
	}
	return found, nil
}

// give changes a mode and sees whether the GPU took it.
func (b *Book) give(ctx context.Context, gpu string, mode Mode, value string) error {
	if err := b.device.SetMode(ctx, gpu, mode, value); err != nil {
		return fmt.Errorf("set the %s of %s to %s: %w", mode, gpu, value, err)
	}
	if err := b.step("changed"); err != nil {
		return err
	}
	found, err := b.device.Mode(ctx, gpu, mode)
	if errors.Is(err, ErrUnknown) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the %s of %s: %w", mode, gpu, err)
	}
	if found != value {
		return fmt.Errorf("set the %s of %s to %s: %w: it is %s", mode, gpu, value, ErrKept, found)
	}
	return nil
}

func (b *Book) save(changes []Change, step string) error {
	if err := b.file.Save(changes); err != nil {
		return fmt.Errorf("write down which modes of GPUs are changed: %w", err)
	}
	b.changes = changes
	return b.step(step)
}

func (b *Book) find(gpu string, mode Mode) int {
	return slices.IndexFunc(b.changes, func(c Change) bool { return c.GPU == gpu && c.Mode == mode })
}
