package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/process"
)

// Release ends the tenancy of a key. A key that is not known is no error. A tenancy
// whose processes live is kept, because their memory is not free, and [ErrInUse] is
// returned. What was made for it is removed before its record: if the agent dies in
// between, the next one finds the record and releases the tenancy again.
func (a *Agent) Release(ctx context.Context, key string) error {
	return a.endTenancy(ctx, key, func(t *tenant) error { return a.vacant(ctx, t) })
}

// Abandon releases a tenancy that nobody asks for any more. It also keeps one whose
// container runs and has not touched a GPU yet.
func (a *Agent) Abandon(ctx context.Context, key string) error {
	return a.endTenancy(ctx, key, func(t *tenant) error {
		wanted := a.wanted(t)
		if a.isBare(t) {
			return nil
		}
		if holder := a.makerOf(wanted).Holder(wanted); holder != (process.ID{}) {
			return fmt.Errorf("%w: process %d was started with it", ErrInUse, holder.PID)
		}
		return a.vacant(ctx, t)
	})
}

func (a *Agent) endTenancy(ctx context.Context, key string, vacant func(*tenant) error) error {
	a.mu.Lock()
	t := a.tenancy(key)
	a.mu.Unlock()
	if t == nil {
		return nil
	}
	if err := vacant(t); err != nil {
		return fmt.Errorf("release %s: %w", t.Name, err)
	}
	a.preparing.Lock()
	defer a.preparing.Unlock()
	if err := a.undoTenancy(ctx, t); err != nil {
		return err
	}
	a.settleInstances(ctx) // the cluster may give its place to another at once
	return nil
}

// undoTenancy removes what was made for a tenancy, and its record.
func (a *Agent) undoTenancy(ctx context.Context, t *tenant) error {
	t.look.Lock()
	defer t.look.Unlock()
	a.mu.Lock()
	ended := t.ended
	a.mu.Unlock()
	if ended {
		return nil
	}
	last := a.describe(t)
	a.step("release-begun")
	if !a.isBare(t) {
		a.settle(t)
		wanted := a.wanted(t)
		if err := a.makerOf(wanted).Undo(ctx, wanted); err != nil {
			return fmt.Errorf("release %s: %w", t.Name, err) // its deaths still give notice
		}
	}
	a.notices.Remove(t.ID)
	a.step("release-undone")
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.forget(t); err != nil {
		return fmt.Errorf("release %s: %w", t.Name, err)
	}
	a.tellRefusals(ctx, t, t.seen.Usage, true)
	a.events.over(t.ID)
	const text = "it was released"
	a.recordEnd(&last, text)
	a.happenedTo(ctx, t, control.Event{Kind: control.EventEnded, Tenant: t.Name, User: t.User, Text: text})
	return nil
}

// isBare is [record.bare] for who does not hold Agent.mu.
func (a *Agent) isBare(t *tenant) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return t.bare()
}

// burying are the pauses before each look whether a container's processes, which
// have just been killed, are gone.
var burying = []time.Duration{0, time.Millisecond, 4 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond}

// vacant returns nil when no process of a tenancy lives.
func (a *Agent) vacant(ctx context.Context, t *tenant) error {
	if a.isBare(t) {
		return nil
	}
	for _, pause := range burying {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		wanted := a.wanted(t)
		alive, err := a.makerOf(wanted).Alive(wanted)
		if err != nil {
			return fmt.Errorf("look for its processes: %w", err)
		}
		if !alive {
			return nil
		}
	}
	return fmt.Errorf("%w: its processes still run: they end with their container", ErrInUse)
}

// Adopt gives a tenancy that was found without a checkpoint its key, if it is the
// tenancy of that key.
func (a *Agent) Adopt(ctx context.Context, key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tenancy(key)
	if t == nil || t.Tenancy.Key != "" {
		return
	}
	known := *t.Tenancy
	known.Key = key
	t.Tenancy = &known
	if err := a.save(); err != nil {
		a.config.Log.ErrorContext(ctx, "cannot save tenants", "error", err)
	}
	a.keep(ctx, t)
}
