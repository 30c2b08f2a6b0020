package agent

import (
	"cmp"
	"context"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/suspension"
)

// suspend takes a tenant's processes off their GPUs and answers when they are.
func (a *Agent) suspend(ctx context.Context, peer *control.Peer, p control.SuspendParams) (*control.Tenant, error) {
	t, err := a.find(peer, p.Tenant)
	if err != nil {
		return nil, err
	}
	if err := a.leaveOnceAsked(ctx, t, departure{why: process.UserName(peer.UID) + " suspended it", hold: p.Hold}); err != nil {
		return nil, err
	}
	err = a.awaitMove(ctx, t, func(s *suspended) (done bool, err error) {
		if s == nil || s.Goal != suspension.Out {
			why := a.whyBack(t)
			if why == becauseCalled {
				why += fmt.Sprintf(": `divvy suspend %s --hold` keeps it out until `divvy resume %[1]s`", t.Name)
			}
			return true, control.Errorf(control.CodeRefused, "%s is not suspended: %s", t.Name, why)
		}
		return t.Away == AwayOut && !t.moves, nil
	})
	if err != nil {
		return nil, err
	}
	return a.moved(ctx, t)
}

// whyBack is why a suspension was turned round. Agent.mu is held.
func (a *Agent) whyBack(t *tenant) string {
	if t.Suspended != nil {
		return t.Suspended.By
	}
	return cmp.Or(t.failed, t.came, "it was resumed meanwhile")
}

// resume brings a tenant's processes back to their GPUs and answers when they run. Who gives up waiting leaves the tenant
// its place.
func (a *Agent) resume(ctx context.Context, peer *control.Peer, p control.ResumeParams) (*control.Tenant, error) {
	t, err := a.find(peer, p.Tenant)
	if err != nil {
		return nil, err
	}
	if err := a.mayComeBack(t); err != nil {
		return nil, err
	}
	a.comeBack(ctx, t, process.UserName(peer.UID)+" resumed it")
	var told string
	err = a.awaitMove(ctx, t, func(s *suspended) (done bool, err error) {
		if s != nil && s.Goal == suspension.Out {
			return true, control.Errorf(control.CodeRefused, "%s was suspended again meanwhile", t.Name)
		}
		if s != nil && t.lacks != told {
			told = t.lacks
			control.Tell(ctx, control.Returning{Reason: told})
		}
		return s == nil, nil
	})
	if err != nil {
		return nil, err
	}
	return a.moved(ctx, t)
}

// moved is a tenant that has just left its GPUs or come back. What the driver told of it before is not so any more, so it is
// asked again.
func (a *Agent) moved(ctx context.Context, t *tenant) (*control.Tenant, error) {
	l, err := a.Listing(ctx)
	if err != nil {
		return nil, err
	}
	for _, v := range l.Tenants {
		if v.ID == t.ID {
			return &v, nil // a copy: the listing is for others too
		}
	}
	return nil, control.Errorf(control.CodeNotFound, "%s has ended", t.Name)
}

// awaitMove waits until a tenant's suspension is as wanted. Is is called with Agent.mu held.
func (a *Agent) awaitMove(ctx context.Context, t *tenant, is func(s *suspended) (done bool, err error)) error {
	for {
		a.mu.Lock()
		if t.ended {
			a.mu.Unlock()
			return control.Errorf(control.CodeNotFound, "%s has ended", t.Name)
		}
		done, err := is(t.Suspended)
		changed := a.changed
		a.mu.Unlock()
		if done || err != nil {
			return err
		}
		goOn := control.Pause(ctx)
		select {
		case <-changed:
			goOn()
		case <-a.stopped:
			goOn()
			return control.Errorf(control.CodeInternal, "the agent ends; the next one goes on with %s: `divvy ls` tells", t.Name)
		case <-ctx.Done():
			goOn()
			return fmt.Errorf("give up waiting: %w", ctx.Err())
		}
	}
}
