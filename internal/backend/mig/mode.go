package mig

import (
	"context"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/mig"
)

// SetMode implements [backend.Divider]. The agent lets go of the driver before, and begins again after.
func (b *Backend) SetMode(ctx context.Context, gpu backend.GPU, on bool) error {
	if b.options.Book == nil || b.options.Switcher == nil {
		return errUnchanged
	}
	d, err := b.Division(ctx, gpu)
	if err != nil {
		return err
	}
	err = b.options.Switcher.Alone(gpu, func(s mig.Switch) error {
		return mig.SetMode(ctx, s, gpu.UUID, on, len(d.Parts))
	})
	b.mu.Lock()
	delete(b.profiles, gpu.UUID)
	b.mu.Unlock()
	return err // it says why the GPU keeps its mode, and who calls this knows which GPU it is
}

// RecoverInstances implements [backend.Divider].
func (b *Backend) RecoverInstances(ctx context.Context) (vanished []backend.Instance, err error) {
	if b.options.Book == nil {
		return nil, nil
	}
	gone, err := b.options.Book.Recover(ctx)
	for _, e := range gone {
		i := backend.Instance{
			UUID: e.UUID, Parent: e.GPU, Profile: e.Name, Start: e.Placement.Start, Size: e.Placement.Size, GPUInstance: e.ID, ComputeInstance: e.Compute,
		}
		vanished = append(vanished, i)
	}
	if err != nil {
		err = fmt.Errorf("finish what an earlier agent began: %w", err)
	}
	return vanished, err
}
