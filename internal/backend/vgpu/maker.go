package vgpu

import (
	"context"
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/vgpu"
)

// Maker is a backend as the ledger of claims asks it.
type Maker struct{ Backend *Backend }

var _ claims.Maker = Maker{}

// Take implements [claims.Maker]. Of the device's functions the vGPU takes the first that has one left.
func (m Maker) Take(ctx context.Context, w claims.Want, admit func(members []pci.Address) error) (claims.Given, error) {
	if err := admit([]pci.Address{w.Device}); err != nil {
		return claims.Given{}, err
	}
	d, err := m.Backend.Claim(ctx, w.Name, w.Device, w.Type)
	if err != nil {
		return claims.Given{}, err
	}
	given := claims.Given{Group: d.Group, Members: []pci.Address{d.Function}, Mediated: d.UUID, TypeName: d.Name}
	if d.Interface == vgpu.Mediated {
		given.Path = "/sys/" + binding.MediatedFolder(d.UUID)
	}
	if d.Group < 0 {
		_, undone := m.Release(context.WithoutCancel(ctx), w.Name)
		return claims.Given{}, errors.Join(fmt.Errorf("make a vGPU on %s: %w", w.Device, binding.ErrNoGroup), undone)
	}
	given.Nodes = []string{d.Node()}
	return given, nil
}

// Release implements [claims.Maker].
func (m Maker) Release(ctx context.Context, owner string) (left []string, err error) {
	return claims.Released(m.Backend.Release(ctx, owner))
}

// Standing implements [claims.Maker].
func (m Maker) Standing(owner string) claims.Standing {
	return claims.StandingIn(m.Backend.options.Book, m.Backend.options.Root, owner)
}
