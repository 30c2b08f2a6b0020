// Package passthrough gives virtual machines whole devices, and single virtual functions, of any vendor: it binds them to
// vfio-pci by plans of internal/vm/binding.
package passthrough

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// Book carries plans out and puts them back, as [vfio.Book] does.
type Book interface {
	Bind(ctx context.Context, owner string, plan binding.Plan) error
	Release(ctx context.Context, owner string) ([]vfio.Foreign, error)
	Entries() []vfio.Entry
}

// Backend gives devices of one form.
type Backend struct {
	book Book
	// root has the machine's files, nil where nobody looks at them; host reads facts of them.
	root fs.FS
	host func() (*facts.Host, error)
	plan func(host *facts.Host, want claims.Want) (binding.Plan, error)
}

var _ claims.Maker = (*Backend)(nil)

// Whole returns the backend of whole devices, each with the rest of its group.
func Whole(book Book, root fs.FS, host func() (*facts.Host, error)) *Backend {
	return &Backend{book, root, host, func(h *facts.Host, w claims.Want) (binding.Plan, error) {
		return binding.Passthrough(h, w.Device, w.Also...)
	}}
}

// Function returns the backend of single virtual functions.
func Function(book Book, root fs.FS, host func() (*facts.Host, error)) *Backend {
	return &Backend{book, root, host, func(h *facts.Host, w claims.Want) (binding.Plan, error) { return binding.Function(h, w.Device) }}
}

// Take implements [claims.Maker].
func (b *Backend) Take(ctx context.Context, w claims.Want, admit func(members []pci.Address) error) (claims.Given, error) {
	host, err := b.host()
	if err != nil {
		return claims.Given{}, fmt.Errorf("read the machine's devices: %w", err)
	}
	plan, err := b.plan(host, w)
	if err != nil {
		return claims.Given{}, err
	}
	if err := admit(plan.Members); err != nil {
		return claims.Given{}, err
	}
	if err := b.book.Bind(ctx, w.Name, plan); err != nil {
		return claims.Given{}, err
	}
	return claims.Given{Group: plan.Group, Members: plan.Members, Unreset: plan.Unreset, Nodes: plan.Nodes, Notes: plan.Notes}, nil
}

// Release implements [claims.Maker].
func (b *Backend) Release(ctx context.Context, owner string) (left []string, err error) {
	return claims.Released(b.book.Release(ctx, owner))
}

// Standing implements [claims.Maker].
func (b *Backend) Standing(owner string) claims.Standing {
	return claims.StandingIn(b.book, b.root, owner)
}
