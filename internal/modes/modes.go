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
	"strings"
	"sync"

	"github.com/divvy-gpu/divvy/internal/checkpoint"
)

// ErrUnknown is returned by a [Device] that cannot tell a mode.
var ErrUnknown = errors.New("the driver does not tell this mode")

// ErrKept says that a mode did not take the value that it was given.
var ErrKept = errors.New("the GPU kept its mode")

// ErrInUse says that processes are on a GPU whose mode was to change.
var ErrInUse = errors.New("the GPU is in use")

// Mode is what can be changed about a GPU.
type Mode string

// The modes, with their values.
const (
	// ComputeMode is default, exclusive-process or prohibited, as NVML has it.
	ComputeMode Mode = "compute-mode"
	// TimeSlice is the length of the driver's time slices: one of [Slices]. Not every driver tells it.
	TimeSlice Mode = "time-slice"
)

// All are the modes in the order of listings.
var All = []Mode{ComputeMode, TimeSlice}

// Slices are the values of [TimeSlice]; the driver's tool counts them from 0.
var Slices = []string{"default", "short", "medium", "long"}

// usual are the values that modes have where the driver cannot tell.
var usual = map[Mode]string{ComputeMode: "default", TimeSlice: "default"}

// Device reads and changes the modes of GPUs, which UUIDs name.
type Device interface {
	// Mode returns the value that a mode has, [ErrUnknown] where that cannot be told.
	Mode(ctx context.Context, gpu string, mode Mode) (string, error)
	SetMode(ctx context.Context, gpu string, mode Mode, value string) error
	// Users are the processes that the driver has on a GPU, whosever they are.
	Users(ctx context.Context, gpu string) ([]User, error)
}

// User is a process that is on a GPU.
type User struct {
	PID int
	// Name is the program's and Owner its user's, both as far as they are known.
	Name, Owner string
}

// String names the process for people.
func (u User) String() string {
	text := fmt.Sprintf("process %d", u.PID)
	if u.Name != "" {
		text += " (" + u.Name + ")"
	}
	if u.Owner != "" {
		text += " of " + u.Owner
	}
	return text
}

// Change is one change of a GPU's mode.
type Change struct {
	GPU  string `json:"gpu"`
	Mode Mode   `json:"mode"`
	// Before is the value to put back.
	Before string `json:"before"`
	// Given are the values that it was given, the last one last. An agent may have ended before it made the last change.
	Given []string `json:"given"`
	// Made is true once the last of them was set.
	Made bool `json:"made,omitempty"`
}

// Last is the value that the mode should have.
func (c Change) Last() string { return c.Given[len(c.Given)-1] }

// Foreign is a mode that somebody else changed after Divvy did.
type Foreign struct {
	Change
	// Found is the value that it has now.
	Found string
}

// Book keeps the changes of one machine. A mode changes only while no process is on the GPU. Its functions may be called
// at the same time.
type Book struct {
	device Device

	mu      sync.Mutex
	file    *checkpoint.File[[]Change]
	changes []Change
	// step is called after each step, so that a test can end there.
	step func(name string) error
}

// FileName is the book's, in an agent's directory.
const FileName = "modes.json"

// Open reads the book at a path. A file that does not exist is an empty book. Step is called after each step of a change,
// so that a test can end the agent there; it may be nil.
func Open(path string, device Device, step func(name string)) (*Book, error) {
	b := &Book{device: device, file: checkpoint.NewFile[[]Change](path, "modes", 1)}
	b.step = func(name string) error {
		if step != nil {
			step("mode-" + name)
		}
		return nil
	}
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
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.changes)
}

// Mode is that of the book's device.
func (b *Book) Mode(ctx context.Context, gpu string, mode Mode) (string, error) {
	return b.device.Mode(ctx, gpu, mode)
}

// Users are those of the book's device.
func (b *Book) Users(ctx context.Context, gpu string) ([]User, error) {
	return b.device.Users(ctx, gpu)
}

// Part is a book of which only one mode is put back.
type Part struct {
	*Book
	mode Mode
}

// Of is the book for whoever changes one mode alone.
func (b *Book) Of(mode Mode) *Part { return &Part{b, mode} }

// PutBack undoes the change of the mode of a GPU, as [Book.PutBack] does.
func (p *Part) PutBack(ctx context.Context, gpu string) ([]Foreign, error) {
	return p.putBack(ctx, gpu, func(m Mode) bool { return m == p.mode })
}

// Set gives a GPU's mode a value, and is sure of it when it returns nil. What was there before the first change is what
// [Book.PutBack] puts back. A value that the mode has is not set again. [ErrInUse] names who is on the GPU otherwise.
func (b *Book) Set(ctx context.Context, gpu string, mode Mode, value string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	found, told, err := b.value(ctx, gpu, mode)
	if err != nil {
		return err
	}
	at := b.find(gpu, mode)
	switch {
	case found != value:
	case at < 0:
		return nil
	case b.changes[at].Last() == value && b.changes[at].Made:
		return nil
	case told:
		return b.save(b.with(gpu, mode, found, value, true), "made")
	}
	if err := b.idle(ctx, gpu, mode); err != nil {
		return err
	}
	if err := b.save(b.with(gpu, mode, found, value, false), "recorded"); err != nil {
		return err
	}
	if err := b.give(ctx, gpu, mode, value); err != nil {
		return err
	}
	return b.save(b.with(gpu, mode, found, value, true), "made")
}

// with are the changes with a value that a mode is given, which it may have already.
func (b *Book) with(gpu string, mode Mode, found, value string, made bool) []Change {
	next := slices.Clone(b.changes)
	at := b.find(gpu, mode)
	if at < 0 {
		return append(next, Change{GPU: gpu, Mode: mode, Before: found, Given: []string{value}, Made: made})
	}
	given := slices.DeleteFunc(slices.Clone(next[at].Given), func(g string) bool { return g == value })
	next[at].Given, next[at].Made = slices.Concat(given, []string{value}), made
	return next
}

// idle returns an error if somebody is on a GPU.
func (b *Book) idle(ctx context.Context, gpu string, mode Mode) error {
	users, err := b.device.Users(ctx, gpu)
	if err != nil {
		return fmt.Errorf("see whether somebody is on %s before its %s changes: %w", gpu, mode, err)
	}
	if len(users) == 0 {
		return nil
	}
	return fmt.Errorf("change the %s of %s: %w by %s: end them first", mode, gpu, ErrInUse, Named(users))
}

// Named names processes for people, of many the first.
func Named(users []User) string {
	named := make([]string, 0, len(users))
	for _, u := range users[:min(len(users), 5)] {
		named = append(named, u.String())
	}
	if more := len(users) - len(named); more > 0 {
		named = append(named, fmt.Sprintf("%d more", more))
	}
	return strings.Join(named, ", ")
}

// PutBack undoes all changes of a GPU. Modes that somebody else has changed since are left alone and returned.
func (b *Book) PutBack(ctx context.Context, gpu string) ([]Foreign, error) {
	return b.putBack(ctx, gpu, func(Mode) bool { return true })
}

func (b *Book) putBack(ctx context.Context, gpu string, wanted func(Mode) bool) ([]Foreign, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var foreign []Foreign
	for _, change := range slices.Backward(slices.Clone(b.changes)) {
		if change.GPU != gpu || !wanted(change.Mode) {
			continue
		}
		found, err := b.device.Mode(ctx, gpu, change.Mode)
		switch {
		case err == nil && found == change.Before:
		case errors.Is(err, ErrUnknown), err == nil && slices.Contains(change.Given, found):
			if err := b.idle(ctx, gpu, change.Mode); err != nil {
				return foreign, err
			}
			if err := b.give(ctx, gpu, change.Mode, change.Before); err != nil {
				return foreign, err
			}
		case err != nil:
			return foreign, fmt.Errorf("read the %s of %s: %w", change.Mode, gpu, err)
		default:
			foreign = append(foreign, Foreign{Change: change, Found: found})
		}
		rest := slices.DeleteFunc(slices.Clone(b.changes), func(c Change) bool { return c.GPU == gpu && c.Mode == change.Mode })
		if err := b.save(rest, "crossed-out"); err != nil {
			return foreign, err
		}
	}
	return foreign, nil
}

// Check returns the modes of a GPU that are not as Divvy made them.
func (b *Book) Check(ctx context.Context, gpu string) ([]Foreign, error) {
	var foreign []Foreign
	for _, change := range b.Changes() {
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
		if found != change.Last() {
			foreign = append(foreign, Foreign{Change: change, Found: found})
		}
	}
	return foreign, nil
}

// value is what a mode has, or what it usually has where the driver cannot tell; told is false then.
func (b *Book) value(ctx context.Context, gpu string, mode Mode) (value string, told bool, err error) {
	found, err := b.device.Mode(ctx, gpu, mode)
	if errors.Is(err, ErrUnknown) {
		if at := b.find(gpu, mode); at >= 0 {
			return b.changes[at].Last(), false, nil
		}
		return usual[mode], false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read the %s of %s: %w", mode, gpu, err)
	}
	return found, true, nil
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
