package vgpu

import (
	"context"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
	"github.com/divvy-gpu/divvy/internal/vm/vgpu"
)

// FunctionsOwner is the owner in the book of a GPU's virtual functions that were enabled on request.
func FunctionsOwner(gpu pci.Address) string { return "functions." + gpu.String() }

// EnableFunctions gives a GPU virtual functions, which it must not have yet. A driver that refuses is told by the kernel's error.
func (b *Backend) EnableFunctions(ctx context.Context, gpu pci.Address, count int) error {
	found, err := vgpu.Read(b.options.Root, gpu)
	if err != nil {
		return err
	}
	plan, err := binding.EnableFunctions(found, count)
	if err != nil {
		return err
	}
	return b.options.Book.Bind(ctx, FunctionsOwner(gpu), plan)
}

// DisableFunctions takes away the virtual functions that Divvy enabled, while nobody uses one. What others changed since is left
// and returned.
func (b *Backend) DisableFunctions(ctx context.Context, gpu pci.Address) ([]vfio.Foreign, error) {
	made, err := b.List(gpu)
	if err != nil {
		return nil, err
	}
	if len(made) > 0 {
		return nil, fmt.Errorf("disable the virtual functions of %s: %w: %s has a vGPU", gpu, ErrUsed, made[0].Function)
	}
	found, err := vgpu.Read(b.options.Root, gpu)
	if err != nil {
		return nil, err
	}
	for _, f := range found.Virtual {
		if f.Driver == binding.Driver {
			return nil, fmt.Errorf("disable the virtual functions of %s: %w: %s is with %s", gpu, ErrUsed, f.Address, f.Driver)
		}
		for _, e := range b.options.Book.Entries() {
			if e.Plan.Device == f.Address && e.Owner != FunctionsOwner(gpu) {
				return nil, fmt.Errorf("disable the virtual functions of %s: %w: %s has %s", gpu, ErrUsed, e.Owner, f.Address)
			}
		}
	}
	return b.options.Book.Release(ctx, FunctionsOwner(gpu))
}
