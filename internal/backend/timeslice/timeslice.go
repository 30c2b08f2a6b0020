// Package timeslice makes shares whose GPU time the driver divides, in time slices that are the same for all processes.
// Memory is limited by our libraries as with backend slice, which makes the tenants' directories.
package timeslice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/backend/slice"
	"github.com/divvy-gpu/divvy/internal/modes"
)

// Modes changes the length of GPUs' time slices and puts it back, as [modes.Part] does.
type Modes interface {
	Set(ctx context.Context, gpu string, mode modes.Mode, value string) error
	PutBack(ctx context.Context, gpu string) ([]modes.Foreign, error)
}

// Options say what is given with the backend.
type Options struct {
	// Slice is the length of a GPU's time slices, one of [modes.Slices]; "" leaves it as it is.
	Slice func(gpu backend.GPU) string
	// Modes changes them; nil lets no GPU have a length.
	Modes Modes
	Log   *slog.Logger
}

// Backend makes tenants as backend slice does.
type Backend struct {
	*slice.Backend
	options Options

	mu sync.Mutex
	// has are the lengths that GPUs were prepared with, by UUID.
	has map[string]string
}

var (
	_ backend.Backend   = (*Backend)(nil)
	_ backend.Extension = (*Backend)(nil)
	_ backend.Former    = (*Backend)(nil)
)

// New returns the backend of a machine whose tenants backend slice makes.
func New(made *slice.Backend, o Options) *Backend {
	return &Backend{Backend: made, options: o, has: map[string]string{}}
}

// Extends implements [backend.Extension].
func (b *Backend) Extends() backend.Backend { return b.Backend }

// Enter implements [backend.Former]: the GPU's time slices get the length that it was given.
func (b *Backend) Enter(ctx context.Context, gpu backend.GPU) error {
	length := b.options.Slice(gpu)
	b.mu.Lock()
	has, entered := b.has[gpu.UUID]
	b.mu.Unlock()
	if entered && has == length {
		return nil
	}
	if err := b.make(ctx, gpu, length); err != nil {
		return fmt.Errorf("give GPU %d time slices of length %s: %w", gpu.Index, orAny(length), err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.has[gpu.UUID] = length
	return nil
}

// errUnchanged is returned by an agent that changes no modes.
var errUnchanged = errors.New("this agent changes no modes of GPUs: the system agent does, which root starts")

func (b *Backend) make(ctx context.Context, gpu backend.GPU, length string) error {
	switch {
	case b.options.Modes == nil && length != "":
		return errUnchanged
	case b.options.Modes == nil:
		return nil
	case length == "":
		return b.putBack(ctx, gpu)
	}
	return b.options.Modes.Set(ctx, gpu.UUID, modes.TimeSlice, length)
}

// Leave implements [backend.Former].
func (b *Backend) Leave(ctx context.Context, gpu backend.GPU) error {
	b.mu.Lock()
	delete(b.has, gpu.UUID)
	b.mu.Unlock()
	if b.options.Modes == nil {
		return nil
	}
	if err := b.putBack(ctx, gpu); err != nil {
		return fmt.Errorf("put back the time slices of GPU %d: %w", gpu.Index, err)
	}
	return nil
}

func (b *Backend) putBack(ctx context.Context, gpu backend.GPU) error {
	foreign, err := b.options.Modes.PutBack(ctx, gpu.UUID)
	for _, f := range foreign {
		b.options.Log.WarnContext(ctx, "somebody changed a mode of a GPU, which is left so", "gpu", gpu.Index, "mode", f.Mode, "found", f.Found, "before", f.Before)
	}
	return err
}

func orAny(length string) string {
	if length == "" {
		return "as they were"
	}
	return length
}
