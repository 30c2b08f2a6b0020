// Package backend is how shares are made real: what a backend is asked for and
// what it answers. The backends themselves are the packages below it.
package backend

import (
	"context"
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/edits"
)

// Backend makes shares of one kind real.
type Backend interface {
	// Discover lists the GPUs of which it can make shares.
	Discover(ctx context.Context) ([]GPU, error)
	// Plan works out what a tenant needs. It changes nothing.
	Plan(t Tenant) (*Plan, error)
	// Apply carries a plan out; a plan that was carried out already is left
	// as it is, and one that fails halfway is undone.
	Apply(ctx context.Context, p *Plan) error
	// Undo removes everything that a plan made, also after a partial Apply. A
	// plan of which only Dir is known is enough.
	Undo(ctx context.Context, p *Plan) error
	// Health returns why no new shares can be made, or nil.
	Health(ctx context.Context) error
}

// Changer is a backend whose shares can change while their tenant runs.
type Changer interface {
	// Change makes the tenant's shares as t has them; dir is the plan's.
	Change(ctx context.Context, dir string, t Tenant) error
}

// Layer names what stands between a tenant and the driver.
type Layer string

// The layers.
const (
	// LayerNamespace covers the driver's files in a mount namespace.
	LayerNamespace Layer = "namespace"
	// LayerEnv only puts our library first on LD_LIBRARY_PATH: a tenant that
	// clears it is reported, not stopped.
	LayerEnv Layer = "env"
	// LayerContainer mounts our libraries into a container that a runtime makes.
	LayerContainer Layer = "container"
)

// GPU is what a backend knows of a GPU. Amounts are bytes.
type GPU struct {
	Index int
	UUID  string
	Name  string
	// PCI is the bus address as NVML prints it.
	PCI             string
	Total, Reserved uint64
	// ContextBytes is what the first context of a process takes.
	ContextBytes uint64
}

// Capacity is what the GPU has for tenants.
func (g GPU) Capacity() uint64 {
	return g.Total - min(g.Reserved, g.Total)
}

// Tenant is whom shares are for.
type Tenant struct {
	ID   string
	Name string
	// UID is who will run it.
	UID int
	// Layer is what whoever starts the tenant can set up.
	Layer Layer
	// LibraryPath is the tenant's LD_LIBRARY_PATH, split.
	LibraryPath []string
	Overcommit  bool
	Shares      []Share
}

// Share is what the tenant gets of one GPU.
type Share struct {
	GPU GPU
	// Limit is in bytes.
	Limit uint64
	// Cores is in percent, 0 to 100.
	Cores int
	// MaxCores is the percentage up to which a burst share takes idle time, its
	// cores to 100; 0 for other policies.
	MaxCores int
	Weight   int
	Policy   v1alpha1.Policy
	Class    v1alpha1.Class
}

// Plan is everything that is to be made for a tenant, as a value that can be
// printed and compared.
type Plan struct {
	// Dir is the tenant directory.
	Dir   string      `json:"dir"`
	Steps []Step      `json:"steps"`
	Edits edits.Edits `json:"edits"`
}

// Step is one thing to make. Both methods may be called any number of times.
type Step interface {
	Apply() error
	Undo() error
}

// Apply carries out the steps of a plan in order and undoes them if one fails.
func (p *Plan) Apply(ctx context.Context) error {
	for _, step := range p.Steps {
		err := ctx.Err()
		if err == nil {
			err = step.Apply()
		}
		if err != nil {
			return errors.Join(fmt.Errorf("prepare tenant: %w", err), p.Undo())
		}
	}
	return nil
}

// Undo undoes all steps, the last first, and goes on after an error.
func (p *Plan) Undo() error {
	var faults []error
	for i := len(p.Steps) - 1; i >= 0; i-- {
		if err := p.Steps[i].Undo(); err != nil {
			faults = append(faults, fmt.Errorf("undo: %w", err))
		}
	}
	return errors.Join(faults...)
}
