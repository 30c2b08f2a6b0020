package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
)

// turnsSource is a backend that opens what the pages of its tenants tell of turns.
type turnsSource interface {
	OpenTurns(t backend.Tenant) (*page.Turns, error)
}

// gateValid is for how long a gate stays closed without an agent.
const gateValid = time.Second

// gates are the pages of tenants that may be suspended, by id, open while they are needed. The zero value is ready.
type gates struct {
	mu    sync.Mutex // held for a moment; nobody takes another lock with it
	pages map[string]*page.Turns
}

// calls is what processes of a tenant tell of their calls. Times are CLOCK_MONOTONIC in ns.
type calls struct {
	// last is when the last call that uses a GPU was, and waits tells whether one waits at the gate.
	last  uint64
	waits bool
	// works is until when work is expected to go on.
	works uint64
	// unsaved is what a checkpoint cannot save, as in present.unsaved.
	unsaved uint32
}

// with opens a tenant's pages unless they are open. It must not be called with Agent.mu held by others than the caller.
func (g *gates) with(a *Agent, t backend.Tenant, do func(*page.Turns) error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pages == nil {
		g.pages = map[string]*page.Turns{}
	}
	p := g.pages[t.ID]
	if p == nil {
		source, ok := a.makerOf(t).(turnsSource)
		if !ok {
			return fmt.Errorf("open the gate of %s: backend %s has none", t.Name, t.Backend)
		}
		var err error
		if p, err = source.OpenTurns(t); err != nil {
			return fmt.Errorf("open the gate of %s: %w", t.Name, err)
		}
		g.pages[t.ID] = p
	}
	return do(p)
}

// drop closes the pages of all tenants but those that are wanted.
func (g *gates) drop(wanted map[string]bool) (err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, p := range g.pages {
		if !wanted[id] {
			err = errors.Join(err, p.Close())
			delete(g.pages, id)
		}
	}
	return err
}

// read tells what the processes of a tenant tell.
func (g *gates) read(a *Agent, t backend.Tenant) (c calls, err error) {
	err = g.with(a, t, func(p *page.Turns) error {
		told, err := p.Read()
		for _, gpu := range told {
			c.works = max(c.works, gpu.Works)
			for _, one := range gpu.Living {
				c.last = max(c.last, one.Called)
				c.waits = c.waits || one.Waits != 0
				c.unsaved |= one.Unsaved
			}
		}
		return err
	})
	return c, err
}

// shut closes the gate of a tenant, or keeps it closed.
func (g *gates) shut(a *Agent, t backend.Tenant) error {
	return g.order(a, t, page.TurnSuspended, true)
}

// order writes a state into a tenant's pages, and has calls told or not.
func (g *gates) order(a *Agent, t backend.Tenant, state uint64, watch bool) error {
	return g.with(a, t, func(p *page.Turns) error {
		for gpu := range t.Shares {
			order, err := p.Order(gpu)
			if err != nil {
				return err
			}
			if order.Order&(1<<page.TurnBits-1) != state {
				order.Order = (order.Order>>page.TurnBits+1)<<page.TurnBits | state
				order.Give, order.Room = 0, 0
			}
			order.Valid = monotonic() + uint64(gateValid)
			if err := p.Write(gpu, order); err != nil {
				return err
			}
		}
		return p.Watch(watch)
	})
}

// open opens the gate of a tenant. Agent.mu is held.
func (g *gates) open(ctx context.Context, a *Agent, t *tenant) {
	wanted := a.tenantOf(&t.record)
	if err := g.order(a, wanted, page.TurnOpen, wanted.Suspends); err != nil {
		a.config.Log.WarnContext(ctx, "cannot open a gate: it opens by itself", "tenant", t.Name, "error", err)
	}
}
