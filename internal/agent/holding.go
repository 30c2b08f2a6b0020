package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Locks keep other agents away from the GPUs on which an agent has shares. They may be
// called under Agent.mu and must not wait for another agent.
type Locks interface {
	// Take holds a GPU; it may be held already.
	Take(ctx context.Context, uuid string) error
	// Give lets go of it.
	Give(uuid string)
	// Has reports whether this agent holds it.
	Has(uuid string) bool
	// Elsewhere says who else holds a GPU, "" if nobody, and what can be done about it.
	Elsewhere(ctx context.Context, uuid string) (held string, ways []string)
}

// errMoved is what an agent answers that grants nothing any more.
var errMoved = control.Errorf(control.CodeMoved, "the system agent takes over: ask it")

// place finds GPUs for a request and holds them for this agent. Agent.mu is held.
func (a *Agent) place(ctx context.Context, r alloc.Request) ([]alloc.Share, error) {
	for range len(a.gpus) + 1 {
		found, err := a.search(ctx, nil, r)
		if err != nil {
			return nil, err
		}
		if a.config.Locks == nil {
			return found, a.permit()
		}
		taken, err := a.takeGPUs(ctx, found)
		if err == nil {
			err = a.permit() // not before: see rundir.ConfiguredSystem and daemon's lock
		}
		if err != nil {
			a.giveGPUs()
			return nil, err
		}
		if taken {
			return found, nil
		}
		a.giveGPUs() // another agent was faster, and the next search knows it
	}
	return nil, &alloc.Refusal{Reason: alloc.ReasonFull, Text: "other agents take the GPUs: try again"}
}

// takeGPUs reports whether this agent holds all GPUs of an assignment.
func (a *Agent) takeGPUs(ctx context.Context, shares []alloc.Share) (bool, error) {
	for _, s := range shares {
		err := a.config.Locks.Take(ctx, s.UUID)
		if err == nil {
			continue
		}
		if held, _ := a.elsewhere(ctx, s.UUID); held == "" {
			return false, fmt.Errorf("hold a GPU: %w", err)
		}
		return false, nil
	}
	return true, nil
}

// giveGPUs lets go of the GPUs on which there is no share. Agent.mu is held.
func (a *Agent) giveGPUs() {
	if a.config.Locks == nil {
		return
	}
	for _, gpu := range a.gpus {
		used := false
		for _, t := range a.tenants {
			used = used || slices.ContainsFunc(t.Shares, func(s share) bool { return s.UUID == gpu.UUID })
		}
		if !used {
			a.config.Locks.Give(gpu.UUID)
		}
	}
}

// elsewhere says which other agent holds a GPU, "" if none, and what can be done about
// it. The question goes on when the requester is gone: one that is broken off makes a free
// GPU look held.
func (a *Agent) elsewhere(ctx context.Context, uuid string) (held string, ways []string) {
	if a.config.Locks == nil {
		return "", nil
	}
	return a.config.Locks.Elsewhere(context.WithoutCancel(ctx), uuid)
}

// permit returns why this agent grants nothing. Agent.mu is held.
func (a *Agent) permit() error {
	if a.handsOver {
		return errMoved
	}
	if a.config.Permit != nil {
		return a.config.Permit()
	}
	return nil
}

// holdTaken holds the GPUs of the tenants that an earlier agent left. It was killed, so
// another agent may have taken one meanwhile; the tenants stay and are counted here.
func (a *Agent) holdTaken(ctx context.Context) {
	if a.config.Locks == nil {
		return
	}
	for _, t := range a.tenants {
		for _, s := range t.Shares {
			if err := a.config.Locks.Take(ctx, s.UUID); err != nil {
				a.config.Log.ErrorContext(ctx, "cannot hold the GPU of a tenant", "tenant", t.Name, "error", err)
				a.events.add(control.Event{Kind: control.EventFault, Tenant: t.Name, User: t.User, UUID: s.UUID, Text: err.Error()})
			}
		}
	}
}

// retryHeld lets waiting requests try again: nobody tells when another agent lets go of
// a GPU, nor when a system agent is configured.
func (a *Agent) retryHeld() {
	if a.config.Locks == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.queue) > 0 {
		a.tell()
	}
}

// leaveTime bounds how long an agent that hands over waits for tenants that it makes.
const leaveTime = 3 * time.Second

// Leave makes the agent grant nothing any more, and returns when all tenants that it
// has granted are in its checkpoint and made.
func (a *Agent) Leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	a.mu.Lock()
	a.handsOver = true
	a.announce()
	a.mu.Unlock()
	for {
		a.mu.Lock()
		made, changed := true, a.changed
		for _, t := range a.tenants {
			made = made && t.ready
		}
		err := a.save()
		a.mu.Unlock()
		if made || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.New("leave: a share is still being made")
		}
	}
}
