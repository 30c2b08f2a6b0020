package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/suspension"
)

// Away is where the memory of a tenant counts that may be suspended. A tenant goes through the states in this order and
// back. Each change is in the checkpoint before it is told to the caller, so that an agent that starts again knows what may
// be where: until it is known, both places count.
type Away string

// The states.
const (
	// AwayNot is a tenant on its GPUs.
	AwayNot Away = ""
	// AwayLeaving is one that is being suspended: it counts on its GPUs and in host memory.
	AwayLeaving Away = "leaving"
	// AwayOut is one that is suspended: it counts in host memory alone, and others may have its GPUs.
	AwayOut Away = "out"
	// AwayWaiting is one that is suspended and waits for its room: its GPUs are kept from requests.
	AwayWaiting Away = "waiting"
	// AwayEntering is one that is being resumed: it counts in both places.
	AwayEntering Away = "entering"
)

// host reports whether the tenant's limits count as host memory, and off whether its GPUs are free of it.
func (w Away) host() bool { return w != AwayNot }
func (w Away) off() bool  { return w == AwayOut || w == AwayWaiting }

// ErrNotAway marks a change from a state in which a tenant is not.
var ErrNotAway = errors.New("the share is not as far as that")

// AwayOf is the state of a tenant.
func (a *Agent) AwayOf(id string) (Away, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tenants[id]
	if t == nil || t.ended {
		return AwayNot, control.Errorf(control.CodeNotFound, "%s has ended", id)
	}
	return t.Away, nil
}

// ReserveHost takes host memory for a tenant that is to be suspended: [AwayNot] becomes [AwayLeaving]. It does nothing for
// one that has it already. Where too little is left the error is a refusal that waits ([alloc.Waits]). The tenant must not
// leave its GPUs before this has returned nil.
func (a *Agent) ReserveHost(ctx context.Context, id string) error {
	return a.changeAway(ctx, id, AwayLeaving, func(t *tenant) error {
		switch {
		case a.config.SwapMemory == 0:
			return a.noHostMemory("a suspended one needs")
		case t.Shares[0].Swap:
			return control.Errorf(control.CodeInvalid, "%s is a swap share, whose managed memory the driver cannot suspend: its memory leaves the GPU by itself", t.Name)
		}
		need := uint64(0)
		for i := range t.Shares {
			need += t.granted(i)
		}
		if !t.isTenancy() {
			if err := a.requester(t.UID, false).roomOnHost(a.heldBy(t.UID, t), need); err != nil {
				return err
			}
		}
		return a.hostRoom(t, len(t.Shares), need, a.hostAhead(nil))
	}, AwayNot)
}

// LeaveGPUs lets others have the GPUs of a tenant whose memory has left them: [AwayLeaving] becomes [AwayOut], and a
// waiting request may be granted them at once.
func (a *Agent) LeaveGPUs(ctx context.Context, id string) error {
	return a.changeAway(ctx, id, AwayOut, nil, AwayLeaving)
}

// EnterGPUs takes the room of a tenant on its GPUs that is to be resumed: [AwayOut] or [AwayWaiting] becomes [AwayEntering].
// Where others have too much of it, the error is a refusal that waits ([alloc.Waits]) and says who does; the tenant is
// [AwayWaiting] then, so that no request gets these GPUs before it. The caller asks again when [Agent.Changed] tells.
// The driver may still have less free than the ledger: that is the caller's to see.
func (a *Agent) EnterGPUs(ctx context.Context, id string) error {
	err := a.changeAway(ctx, id, AwayEntering, func(t *tenant) error { return a.roomBeside(ctx, t, t.Overcommit) }, AwayOut, AwayWaiting)
	if err == nil || !alloc.Waits(err) {
		return err
	}
	if waits := a.changeAway(ctx, id, AwayWaiting, nil, AwayOut, AwayWaiting); waits != nil {
		return waits
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return &alloc.Refusal{Reason: alloc.ReasonFull, Text: a.facts(err, a.tenants[id])}
}

// roomBeside is why a tenant's GPUs have no room for it beside what others may have of them, nil if they have. A share that was
// granted beyond what its GPU has is no exception: its neighbours could take within their limits what it needs while it is
// restored. They cannot so take cores. Agent.mu is held.
func (a *Agent) roomBeside(ctx context.Context, t *tenant, overcommitCores bool) error {
	for i := range t.Shares {
		s := &t.Shares[i]
		r := alloc.Request{
			Count: 1, Among: alloc.Names(s.UUID), Memory: v1alpha1.Bytes(t.granted(i)), Cores: s.Guaranteed(s.Cores), Form: string(s.Backend.Form()),
			OvercommitCores: overcommitCores,
		}
		if _, err := a.search(ctx, t, r); err != nil {
			return err
		}
	}
	return nil
}

// StayAway ends the wait of a tenant for its GPUs: [AwayWaiting] and [AwayEntering], when the tenant could not be resumed
// and is off the GPU, become [AwayOut].
func (a *Agent) StayAway(ctx context.Context, id string) error {
	return a.changeAway(ctx, id, AwayOut, nil, AwayWaiting, AwayEntering)
}

// ReturnHost gives back the host memory of a tenant that is on its GPUs: after a resumption, or where it was not suspended
// after all, [AwayEntering] and [AwayLeaving] become [AwayNot]. One that is to leave keeps it.
func (a *Agent) ReturnHost(ctx context.Context, id string) error {
	return a.changeAway(ctx, id, AwayNot, func(t *tenant) error {
		if t.Suspended != nil && t.Suspended.Goal == suspension.Out {
			return fmt.Errorf("%w: %s is to leave its GPUs", ErrNotAway, t.Name)
		}
		return nil
	}, AwayEntering, AwayLeaving)
}

// Changed returns a channel that is closed when tenants or requests change next.
func (a *Agent) Changed() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed
}

// changeAway brings a tenant from one of some states to another, if may allows it, and saves that. A tenant that is there
// already stays.
func (a *Agent) changeAway(ctx context.Context, id string, to Away, may func(*tenant) error, from ...Away) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tenants[id]
	switch {
	case t == nil || t.ended:
		return control.Errorf(control.CodeNotFound, "%s has ended", id)
	case t.Away == to:
		return nil
	case !slices.Contains(from, t.Away):
		return fmt.Errorf("%w: %s is %q and cannot become %q", ErrNotAway, t.Name, t.Away, to)
	}
	if may != nil {
		if err := may(t); err != nil {
			return err
		}
	}
	before := t.Away
	t.Away = to
	if err := a.save(); err != nil {
		t.Away = before
		return err
	}
	a.keep(ctx, t)
	a.announce()
	return nil
}

// awaitedBySuspended are the GPUs that suspended tenants wait for, but for one of them. Agent.mu is held.
func (a *Agent) awaitedBySuspended(except *tenant) (set gpuSet) {
	for _, t := range a.tenants {
		if t == except || t.Away != AwayWaiting {
			continue
		}
		for _, s := range t.Shares {
			set |= a.setOf([]string{s.UUID})
		}
	}
	return set
}
