package tenantdir

import (
	"context"
	"log/slog"

	"github.com/divvy-gpu/divvy/internal/backend"
)

// Reaper takes what dead processes held out of a tenant's page. It runs with the
// rights of uid.
type Reaper func(ctx context.Context, d Dir, uid int) error

// Config is what [Tenants] work with.
type Config struct {
	// Root is the directory of tenant directories.
	Root string
	// PIDNamespace is the inode of the agent's pid namespace.
	PIDNamespace uint64
	Reap         Reaper
	// Step is called after each step of [Tenants.Adopt], so that a test can end the agent
	// there; it may be nil.
	Step func(name string)
	Log  *slog.Logger
}

// Tenants are the tenants with directories below one root. They implement what
// a backend has to tell of its tenants by reading their pages.
type Tenants struct {
	config    Config
	strangers strangers
	cgroups   cgroups
	reaps     reaps
}

var (
	_ backend.Observer  = (*Tenants)(nil)
	_ backend.Processes = (*Tenants)(nil)
	_ backend.Changer   = (*Tenants)(nil)
	_ backend.Keeper    = (*Tenants)(nil)
	_ backend.Notifier  = (*Tenants)(nil)
	_ backend.Adopter   = (*Tenants)(nil)
)

// NewTenants knows no tenant; all that it tells, it reads when it is asked.
func NewTenants(c Config) *Tenants {
	return &Tenants{config: c}
}

// Dir is where a tenant's directory belongs.
func (ts *Tenants) Dir(t backend.Tenant) Dir {
	if t.Layer == backend.LayerContainer {
		return Of(Containers(ts.config.Root), t.ID)
	}
	return Of(ts.config.Root, t.ID)
}

// Change implements [backend.Changer].
func (ts *Tenants) Change(_ context.Context, t backend.Tenant) error {
	return Dir(t.Dir).Update(t)
}

// Keep implements [backend.Keeper].
func (ts *Tenants) Keep(t backend.Tenant) error {
	return Dir(t.Dir).keep(t.Record)
}

// Complete implements [backend.Observer].
func (ts *Tenants) Complete(t backend.Tenant) bool {
	return Dir(t.Dir).Complete()
}
