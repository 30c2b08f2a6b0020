package agent

import (
	"context"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/suspension"
)

// Order has the shares of a tenancy stay off their GPUs until it is taken back. The cluster's scheduler gives it.
type Order struct {
	// Number tells it from earlier and later orders for the same claim.
	Number int64 `json:"number"`
	// Whom is for whom the shares leave, for people: pod NAMESPACE/NAME of queue NAME.
	Whom string `json:"whom"`
}

// by is why a share is off its GPUs, for people.
func (o *Order) by() string { return "the cluster's scheduler gives its room to " + o.Whom }

// Suspend takes a tenancy off its GPUs for an order and returns nil when its GPUs are free of it. Any error but
// that of ctx says in one line why it stays there. Who gives up waiting leaves the tenancy on its way.
func (a *Agent) Suspend(ctx context.Context, key string, o Order) error {
	t, err := a.ofKey(key)
	if err != nil {
		return err
	}
	if err := a.leaveOnceAsked(ctx, t, departure{why: o.by(), hold: true, order: &o}); err != nil {
		return err
	}
	return a.awaitMove(ctx, t, func(s *suspended) (done bool, err error) {
		if s == nil || s.Goal != suspension.Out {
			return true, control.Errorf(control.CodeRefused, "%s is not suspended: %s", t.Name, a.whyBack(t))
		}
		return t.Away == AwayOut && !t.moves, nil
	})
}

// Resume brings a tenancy whose order is taken back to its GPUs, and returns nil when it is there, or was never away. Who gives up
// waiting leaves it its place.
func (a *Agent) Resume(ctx context.Context, key string) error {
	t, err := a.ofKey(key)
	if err != nil {
		return err
	}
	a.comeBack(ctx, t, "the cluster's scheduler lets it have its room again")
	return a.awaitMove(ctx, t, func(s *suspended) (done bool, err error) {
		return s == nil || s.Goal == suspension.Out, nil // somebody else has it leave again
	})
}

// Ordered has the orders by which tenancies are off their GPUs or leave them, by key.
func (a *Agent) Ordered() map[string]Order {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string]Order{}
	for _, t := range a.tenants {
		if t.Tenancy != nil && !t.ended && t.ordered() != nil {
			all[t.Tenancy.Key] = *t.Suspended.Order
		}
	}
	return all
}

// ofKey is the tenant of a key.
func (a *Agent) ofKey(key string) (*tenant, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tenancy(key)
	if t == nil {
		return nil, control.Errorf(control.CodeNotFound, "there is no share with key %s", key)
	}
	return t, nil
}

// ordered is the order by which a tenant is off its GPUs or leaves them, nil if there is none. Agent.mu is held.
func (t *tenant) ordered() *Order {
	if s := t.Suspended; s != nil && s.Goal == suspension.Out {
		return s.Order
	}
	return nil
}

// mayComeBack refuses to bring back a tenant that an order keeps out: its room is somebody's.
func (a *Agent) mayComeBack(t *tenant) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o := t.ordered(); o != nil {
		return control.Errorf(control.CodeRefused, "%s is suspended for %s: the cluster's scheduler brings it back by itself when it is its turn and its GPUs have room", t.Name, o.Whom)
	}
	return nil
}
