package vgpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/vgpu"
)

// backedBy makes a vGPU that is backed by a GPU instance: the instance first. The instance's book says whose it is, and an agent
// that ends on the way leaves an instance whose owner has no vGPU, which [Backend.Recover] takes away.
func (b *Backend) backedBy(ctx context.Context, owner string, found *vgpu.GPU, kind, profile string, w binding.Wanted) (at pci.Address, err error) {
	instances, err := b.made()
	if err == nil && instances == nil {
		err = ErrInstances
	}
	if err != nil {
		return at, fmt.Errorf("make a vGPU of type %+q on %s: %w", kind, found.Address, err)
	}
	instance, err := instances.Make(ctx, found.Address, profile, owner)
	if err != nil {
		return at, fmt.Errorf("make GPU instance %s on %s: %w", profile, found.Address, err)
	}
	w.Instance = &instance
	if w.Type, err = b.backedType(ctx, owner, found, kind, instance, w.Not); err != nil {
		return at, err
	}
	plan, err := binding.MakeVGPU(found, w)
	if err != nil {
		return at, err
	}
	return plan.Device, b.options.Book.Bind(ctx, owner, plan)
}

// backedType finds the number of a type that a function tells only once there is an instance behind it. It is asked of a function
// which has one for that time.
func (b *Backend) backedType(ctx context.Context, owner string, found *vgpu.GPU, kind string, instance int, not []pci.Address) (vgpu.Choice, error) {
	key := strings.ToLower(kind)
	b.mu.Lock()
	known, is := b.backed[key]
	b.mu.Unlock()
	if is {
		return known, nil
	}
	plan, err := binding.BackFunction(found, instance, not)
	if err != nil && slices.ContainsFunc(found.Functions, func(f vgpu.Function) bool { return f.HasInstance }) {
		return vgpu.Choice{}, err
	}
	if err == nil {
		if err := b.options.Book.Bind(ctx, owner, plan); err != nil {
			return vgpu.Choice{}, err
		}
	}
	told, err := vgpu.Read(b.options.Root, found.Address)
	if err == nil {
		known, err = told.Resolve(kind)
	}
	if plan.Device != (pci.Address{}) {
		_, undo := b.options.Book.Release(context.WithoutCancel(ctx), owner)
		err = errors.Join(err, undo)
	}
	if err != nil {
		return vgpu.Choice{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backed[key] = known
	return known, nil
}
