// Package mig makes each share a MIG instance of its own, whose memory and SMs the hardware keeps apart, and divides GPUs
// in MIG mode for shares of other backends, which may be parts of instances. Our libraries stand in front of the driver's
// as with backend slice, which makes the tenants' directories.
package mig

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/backend/slice"
	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// Switcher changes the MIG mode of GPUs.
type Switcher interface {
	// Alone lets go of the driver and calls do, which may change the mode of a GPU.
	Alone(gpu backend.GPU, do func(mig.Switch) error) error
}

// Options say what is given with the backend.
type Options struct {
	// Book makes instances and knows which are Divvy's. Nil is an agent that makes none.
	Book *mig.Book
	// Reader tells about GPUs.
	Reader mig.Reader
	// Capable reports whether a GPU has MIG.
	Capable func(gpu backend.GPU) bool
	// Switcher changes modes; nil changes none.
	Switcher Switcher
	Log      *slog.Logger
}

// Backend makes tenants as backend slice does.
type Backend struct {
	*slice.Backend
	options Options

	mu sync.Mutex
	// profiles are those of GPUs in MIG mode, by UUID. They do not change while the driver runs.
	profiles map[string][]nvml.MIGProfile
	// settling are the GPUs about which something is to be finished.
	settling map[string]bool
	closed   chan struct{}
	running  sync.WaitGroup
}

var (
	_ backend.Backend   = (*Backend)(nil)
	_ backend.Extension = (*Backend)(nil)
	_ backend.Divider   = (*Backend)(nil)
	_ backend.Chooser   = (*Backend)(nil)
)

// New returns the backend of a machine whose tenants backend slice makes. [Backend.Close] must follow.
func New(made *slice.Backend, o Options) *Backend {
	return &Backend{Backend: made, options: o, profiles: map[string][]nvml.MIGProfile{}, settling: map[string]bool{}, closed: make(chan struct{})}
}

// Close ends what runs beside the agent's requests.
func (b *Backend) Close() error {
	close(b.closed)
	b.running.Wait()
	return nil
}

// Extends implements [backend.Extension].
func (b *Backend) Extends() backend.Backend { return b.Backend }

// MakesInstances reports whether the agent makes instances.
func (b *Backend) MakesInstances() bool { return b.options.Book != nil }

// errUnchanged is returned by an agent that makes no instances.
var errUnchanged = errors.New("this agent makes no MIG instances: the system agent does, which root starts")

// Create implements [backend.Divider].
func (b *Backend) Create(ctx context.Context, gpu backend.GPU, profile string, start int, origin backend.Origin) (backend.Instance, error) {
	if b.options.Book == nil {
		return backend.Instance{}, errUnchanged
	}
	profiles, err := b.profilesOf(ctx, gpu)
	if err != nil {
		return backend.Instance{}, err
	}
	p, at, err := placed(profiles, profile, start)
	if err != nil {
		return backend.Instance{}, err
	}
	e, err := b.options.Book.Create(ctx, gpu.UUID, p, at, string(origin))
	if err != nil {
		b.settleLater(ctx, gpu, err)
		return backend.Instance{}, err
	}
	i := instanceOf(e, p)
	i.ContextBytes, i.Reserved = b.ContextOn(ctx, gpu, i), b.reservedOn(ctx, gpu, i)
	return i, nil
}

// reservedOn is what the driver keeps of the memory of an instance that is there, 0 where it does not tell.
func (b *Backend) reservedOn(ctx context.Context, gpu backend.GPU, i backend.Instance) uint64 {
	if n := b.KnownReservedOn(gpu, i); n > 0 {
		return n
	}
	found, err := b.options.Reader.MIGInstances(ctx, gpu.UUID)
	if err != nil {
		return 0 // the next reading of the GPU tells
	}
	for _, one := range found {
		if one.ID == i.GPUInstance && len(one.Compute) == 1 {
			i.Reserved = one.Compute[0].Reserved
		}
	}
	b.NoteReserved(ctx, gpu, i)
	return i.Reserved
}

// Destroy implements [backend.Divider].
func (b *Backend) Destroy(ctx context.Context, gpu backend.GPU, uuid string) error {
	if b.options.Book == nil {
		return errUnchanged
	}
	if err := b.options.Book.Destroy(ctx, uuid); err != nil {
		b.settleLater(ctx, gpu, err)
		return err
	}
	return nil
}

// Claim implements [backend.Divider].
func (b *Backend) Claim(ctx context.Context, _ backend.GPU, uuid string, origin backend.Origin) error {
	if b.options.Book == nil {
		return errUnchanged
	}
	return b.options.Book.Claim(ctx, uuid, string(origin))
}

// settleTime is the time between two tries to finish what a driver that did not answer left.
const settleTime = 5 * time.Second

// settleLater finishes what was begun about a GPU once the driver answers again.
func (b *Backend) settleLater(ctx context.Context, gpu backend.GPU, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !errors.Is(err, nvml.ErrSilent) || b.settling[gpu.UUID] {
		return
	}
	b.settling[gpu.UUID] = true
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b.running.Go(func() {
		defer cancel()
		for {
			select {
			case <-time.After(settleTime):
			case <-b.closed:
				return
			}
			if err := b.options.Book.Settle(ctx, gpu.UUID); err == nil {
				break
			}
		}
		b.options.Log.InfoContext(ctx, "finished with MIG instances that the driver had not answered about", "gpu", gpu.Index)
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.settling, gpu.UUID)
	})
}
