package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// join makes a tenant known to the GPU's daemon: the daemon's limits become those of the loosest share, and the server
// of the tenant's user runs before the tenant's first program.
type join struct {
	Tenant     string  `json:"joinDaemon"`
	GPU        string  `json:"gpu"`
	Percentage float64 `json:"percentage"`
	Memory     uint64  `json:"memory"`
	member     member
	backend    *Backend
}

// Apply implements [backend.Step].
func (s join) Apply() error {
	ctx, cancel := context.WithTimeout(context.Background(), openTime)
	defer cancel()
	return s.backend.join(ctx, s.Tenant, s.member, true)
}

// Undo implements [backend.Step].
func (s join) Undo() error {
	ctx, cancel := context.WithTimeout(context.Background(), openTime)
	defer cancel()
	s.backend.part(ctx, s.Tenant)
	return nil
}

// join enters a tenant. With must it has to be served now; else that is the supervisor's to see to.
func (b *Backend) join(ctx context.Context, tenant string, m member, must bool) error {
	b.mu.Lock()
	before, known := b.members[tenant]
	b.members[tenant] = m
	s := b.gpus[m.gpu]
	b.mu.Unlock()
	switch {
	case s == nil && must:
		return fmt.Errorf("%w: it was not started", ErrUnserved)
	case s == nil, known && before == m && !must:
		return nil
	}
	if err := s.await(ctx); err != nil {
		return err
	}
	return errors.Join(s.supervisor.Admit(), s.supervisor.Settle(ctx))
}

// part forgets a tenant. The limits tighten to those of the shares that stay.
func (b *Backend) part(ctx context.Context, tenant string) {
	b.mu.Lock()
	m, known := b.members[tenant]
	delete(b.members, tenant)
	s := b.gpus[m.gpu]
	b.mu.Unlock()
	if !known || s == nil || !b.inUse(m.gpu) {
		return
	}
	s.mu.Lock()
	down := s.down
	s.mu.Unlock()
	if down != "" {
		return // it gets them when it starts
	}
	if err := errors.Join(s.supervisor.Admit(), s.supervisor.Settle(ctx)); err != nil {
		b.options.Log.WarnContext(ctx, "cannot tighten the limits of an MPS daemon, which are looser than its shares'", "gpu", m.gpu, "error", err)
	}
}

// mountPoint makes the directory over which a container gets the pipe directory.
type mountPoint struct {
	Path string `json:"mountPoint"`
}

// Apply implements [backend.Step].
func (s mountPoint) Apply() error {
	if err := os.Mkdir(s.Path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make a place for the MPS pipe directory: %w", err)
	}
	return nil
}

// Undo implements [backend.Step].
func (s mountPoint) Undo() error {
	if err := os.Remove(s.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the place of the MPS pipe directory: %w", err)
	}
	return nil
}
