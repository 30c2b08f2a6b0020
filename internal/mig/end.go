package mig

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// errStopped is returned by steps at which a test ends the agent.
var errStopped = errors.New("the agent ended")

// end takes away what there is of an entry, and crosses it out. An instance that became somebody else's is left alone.
func (b *Book) end(ctx context.Context, e Entry) error {
	listed, err := b.instances(ctx, e.GPU)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(listed, e.is)
	if at >= 0 && !e.foreign(listed[at]) {
		if err := b.take(ctx, e, listed[at]); err != nil {
			return err
		}
	}
	return b.save("crossed-out", func(all []Entry) []Entry {
		return slices.DeleteFunc(all, func(o Entry) bool { return o.GPU == e.GPU && o.Placement == e.Placement })
	})
}

// foreign reports whether an instance at an entry's placement has a compute instance that Divvy did not make. Divvy makes
// one only after it has written down the GPU instance.
func (e Entry) foreign(i nvml.MIGInstance) bool {
	return slices.ContainsFunc(i.Compute, func(c nvml.MIGCompute) bool {
		return e.State == Making || e.UUID != "" && c.UUID != e.UUID
	})
}

// take takes an instance away.
func (b *Book) take(ctx context.Context, e Entry, i nvml.MIGInstance) error {
	for _, c := range i.Compute {
		if err := b.driver.DestroyMIGCompute(ctx, e.GPU, i.ID, c.ID); err != nil && !errors.Is(err, nvml.ErrNotFound) {
			return err
		}
		if err := b.step("compute-ended"); err != nil {
			return err
		}
	}
	if err := b.driver.DestroyMIGInstance(ctx, e.GPU, i.ID); err != nil && !errors.Is(err, nvml.ErrNotFound) {
		return err
	}
	return b.step("instance-ended")
}

// stands reports whether an entry's instance and its compute instance are there.
func (b *Book) stands(ctx context.Context, e Entry) (bool, error) {
	listed, err := b.instances(ctx, e.GPU)
	if err != nil {
		return false, err
	}
	return e.In(listed), nil
}

// In reports whether an entry's instance is in a list, with its compute instance.
func (e Entry) In(listed []nvml.MIGInstance) bool {
	at := slices.IndexFunc(listed, e.is)
	return at >= 0 && slices.ContainsFunc(listed[at].Compute, func(c nvml.MIGCompute) bool { return c.UUID == e.UUID })
}

// instances are those of a GPU; a GPU that is not in MIG mode has none.
func (b *Book) instances(ctx context.Context, gpu string) ([]nvml.MIGInstance, error) {
	mode, err := b.driver.MIGMode(ctx, gpu)
	if err != nil {
		return nil, fmt.Errorf("read the MIG mode of %s: %w", gpu, err)
	}
	if !mode.Current {
		return nil, nil
	}
	listed, err := b.driver.MIGInstances(ctx, gpu)
	if err != nil {
		return nil, fmt.Errorf("list the MIG instances of %s: %w", gpu, err)
	}
	return listed, nil
}

// free returns why no instance can be made at a placement.
func (b *Book) free(ctx context.Context, gpu string, at nvml.MIGPlacement) error {
	mode, err := b.driver.MIGMode(ctx, gpu)
	if err != nil {
		return fmt.Errorf("read its MIG mode: %w", err)
	}
	if !mode.Current {
		return ErrMode
	}
	for _, e := range b.Entries() {
		if e.GPU == gpu && overlap(e.Placement, at) {
			return fmt.Errorf("%w: %s at memory slice %d is ours", ErrOccupied, e.Name, e.Placement.Start)
		}
	}
	listed, err := b.driver.MIGInstances(ctx, gpu)
	if err != nil {
		return fmt.Errorf("list its instances: %w", err)
	}
	for _, i := range listed {
		if overlap(i.Placement, at) {
			return fmt.Errorf("%w: instance %d, which is not Divvy's, has memory slices %d to %d", ErrOccupied, i.ID, i.Placement.Start, i.Placement.Start+i.Placement.Size-1)
		}
	}
	return nil
}

// put replaces the entry with the same placement.
func (b *Book) put(e Entry, step string) error {
	return b.save(step, func(all []Entry) []Entry {
		all[slices.IndexFunc(all, func(o Entry) bool { return o.GPU == e.GPU && o.Placement == e.Placement })] = e
		return all
	})
}

// save changes the entries, and keeps them as they were if that cannot be written down.
func (b *Book) save(step string, change func(all []Entry) []Entry) error {
	b.mu.Lock()
	next := change(slices.Clone(b.entries))
	err := b.file.Save(next)
	if err == nil {
		b.entries = next
	}
	b.mu.Unlock()
	if err != nil {
		return fmt.Errorf("write down which MIG instances are ours: %w", err)
	}
	return b.step(step)
}
