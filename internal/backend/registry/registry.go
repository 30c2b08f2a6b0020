// Package registry has the backends of one machine by name, and asks them together where a question is about no single
// tenant.
package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/process"
)

// Kind is a backend with its name.
type Kind struct {
	Name v1alpha1.Backend
	backend.Backend
}

// Registry has the backends of one machine. What concerns a tenant is asked of [Registry.Of] the backend that the tenant
// names. Its functions may be called at the same time.
type Registry struct {
	kinds []Kind
	// makers are those that keep tenants, each once: a backend that extends another one finds no tenants of its own.
	makers []backend.Backend
}

// New returns the registry of at least one backend. The first one also stands for names that have none, so that what an
// agent with other backends left can be looked at and removed.
func New(kinds ...Kind) *Registry {
	r := &Registry{kinds: kinds}
	for _, k := range kinds {
		if maker := makerOf(k.Backend); !slices.Contains(r.makers, maker) {
			r.makers = append(r.makers, maker)
		}
	}
	return r
}

// makerOf is the backend that keeps what a backend makes.
func makerOf(b backend.Backend) backend.Backend {
	for {
		extension, ok := b.(backend.Extension)
		if !ok {
			return b
		}
		b = extension.Extends()
	}
}

// Kinds are the backends in their order.
func (r *Registry) Kinds() []Kind { return slices.Clone(r.kinds) }

// Has reports whether there is a backend of that name; no name stands for the first one.
func (r *Registry) Has(name v1alpha1.Backend) bool {
	return name == "" || slices.ContainsFunc(r.kinds, func(k Kind) bool { return k.Name == name })
}

// Of is the backend of a name, the first one if there is none.
func (r *Registry) Of(name v1alpha1.Backend) backend.Backend {
	for _, k := range r.kinds {
		if k.Name == name {
			return k.Backend
		}
	}
	return r.kinds[0].Backend
}

// Discover lists the GPUs of all backends. A GPU that several know is as the first of them has it.
func (r *Registry) Discover(ctx context.Context) ([]backend.GPU, error) {
	var gpus []backend.GPU
	for _, maker := range r.makers {
		found, err := maker.Discover(ctx)
		if err != nil {
			return nil, err
		}
		for _, gpu := range found {
			if !slices.ContainsFunc(gpus, func(known backend.GPU) bool { return known.UUID == gpu.UUID }) {
				gpus = append(gpus, gpu)
			}
		}
	}
	return gpus, nil
}

// Recover finds the tenants that an earlier agent made with any backend. Beside an error it has those that were found.
func (r *Registry) Recover(ctx context.Context) ([]backend.Found, error) {
	var all []backend.Found
	var faults []error
	for _, maker := range r.makers {
		found, err := maker.Recover(ctx)
		all, faults = append(all, found...), append(faults, err)
	}
	return all, errors.Join(faults...)
}

// Container is the ID of the tenant in whose container a process runs, "" for any other process.
func (r *Registry) Container(pid int) (tenant string) {
	for _, maker := range r.makers {
		if tenant = maker.Container(pid); tenant != "" {
			return tenant
		}
	}
	return ""
}

// Owner is the ID of the one of the tenants to which a process belongs, see [backend.Processes].
func (r *Registry) Owner(tenants []backend.Tenant, pid int) (tenant string, unread bool) {
	for _, maker := range r.makers {
		mine := r.of(maker, tenants)
		if len(mine) == 0 {
			continue
		}
		found, unsure := maker.Owner(mine, pid)
		if found != "" {
			return found, false
		}
		unread = unread || unsure
	}
	return "", unread
}

// Counts reports whether what a process uses is in the figures of one of the tenants.
func (r *Registry) Counts(tenants []backend.Tenant, id process.ID) bool {
	return slices.ContainsFunc(r.makers, func(maker backend.Backend) bool {
		mine := r.of(maker, tenants)
		return len(mine) > 0 && maker.Counts(mine, id)
	})
}

// of are those of the tenants that a backend keeps.
func (r *Registry) of(maker backend.Backend, tenants []backend.Tenant) []backend.Tenant {
	return slices.DeleteFunc(slices.Clone(tenants), func(t backend.Tenant) bool { return makerOf(r.Of(t.Backend)) != maker })
}

// Adopters are the backends that find tenants which another user's agent made.
func (r *Registry) Adopters() (adopters []backend.Adopter) {
	for _, maker := range r.makers {
		if adopter, ok := maker.(backend.Adopter); ok {
			adopters = append(adopters, adopter)
		}
	}
	return adopters
}

// Notices tell what the tenants of all backends do, as far as these notice it.
func (r *Registry) Notices() (backend.Notices, error) {
	all := &notices{registry: r, of: map[backend.Backend]backend.Notices{}}
	for _, maker := range r.makers {
		notifier, ok := maker.(backend.Notifier)
		if !ok {
			continue
		}
		one, err := notifier.Notices()
		if err != nil {
			all.Close()
			return nil, fmt.Errorf("watch tenants: %w", err)
		}
		all.of[maker] = one
	}
	return all, nil
}

// notices are those of several backends.
type notices struct {
	registry *Registry
	of       map[backend.Backend]backend.Notices
}

// Add implements [backend.Notices].
func (n *notices) Add(t backend.Tenant) error {
	if one := n.of[makerOf(n.registry.Of(t.Backend))]; one != nil {
		return one.Add(t)
	}
	return nil
}

// Remove implements [backend.Notices].
func (n *notices) Remove(id string) {
	for _, one := range n.of {
		one.Remove(id)
	}
}

// Run implements [backend.Notices].
func (n *notices) Run(ctx context.Context, to backend.Listener) {
	var running sync.WaitGroup
	for _, one := range n.of {
		running.Go(func() { one.Run(ctx, to) })
	}
	running.Wait()
}

// Close implements [backend.Notices].
func (n *notices) Close() {
	for _, one := range n.of {
		one.Close()
	}
}
