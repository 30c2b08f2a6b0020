package agent

import (
	"context"
	"errors"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// A lasting tenant is one that no process holds. Containers get its shares by a CDI device with its name, and it stays
// until somebody stops it. It is made in this order: the record, what the backend makes, the record without Unmade, the
// device; and ended in this one: the device, its processes, what the backend made, the record. So a device never leads
// to what is not there, and the agent that follows one which died finds what is to be made or removed.

// Devices keeps the CDI devices of lasting tenants where container runtimes find them.
type Devices interface {
	// Check returns an error for a name that no device can have.
	Check(name string) error
	// Write makes or replaces the device of a tenant. It refuses to replace one that leads to another tenant's directory
	// while that exists.
	Write(name string, e edits.Edits) error
	// Remove removes a device. That there is none is no error.
	Remove(name string) error
	// Sweep removes the devices that lead to directories which are not there any more.
	Sweep() error
}

// held reports whether something besides processes on the GPU keeps the tenant.
func (t *tenant) held() bool {
	return t.connection || t.process || t.isTenancy() || t.lasts() && !t.vacated
}

// isTenancy reports whether the cluster asked for the tenant.
func (t *tenant) isTenancy() bool { return t.Tenancy != nil }

// contained reports whether the tenant's processes are those of containers.
func (t *tenant) contained() bool { return t.Layer == backend.LayerContainer }

// lasts reports whether the tenant lasts until it is stopped.
func (t *tenant) lasts() bool { return t.contained() && !t.isTenancy() }

// deviceOf is the qualified name of a lasting tenant's device.
func deviceOf(name string) string { return v1alpha1.CDIKind + "=" + name }

// createLasting makes a lasting tenant, or returns the one that was made for the same ticket.
func (a *Agent) createLasting(ctx context.Context, peer *control.Peer, p control.CreateParams) (*control.Created, error) {
	switch {
	case peer.UID != 0:
		return nil, control.Errorf(control.CodeDenied, "only root makes shares for containers: ask an administrator (`divvy share create NAME --for USER`)")
	case a.config.Devices == nil:
		return nil, control.Errorf(control.CodeDenied, "shares for containers are made by the system agent, which outlives them: start it (%s)", rundir.Start(""))
	case p.Request.Name == "":
		return nil, control.Errorf(control.CodeInvalid, "a share for containers has no name: give one")
	}
	if err := a.config.Devices.Check(p.Request.Name); err != nil {
		return nil, &control.Error{Code: control.CodeInvalid, Message: err.Error()}
	}
	if t := a.lastingOf(p.Ticket); t != nil {
		return &control.Created{Tenant: a.describe(t)}, nil
	}
	owner := *peer
	if p.For != nil {
		owner.UID, owner.Maker = *p.For, *p.For
	}
	t, err := a.grant(ctx, &owner, a.requester(peer.UID, !p.Wait), p)
	if err != nil {
		return nil, err
	}
	if err := a.publishDevice(ctx, t); err != nil {
		return nil, errors.Join(err, a.unmake(ctx, t))
	}
	return &control.Created{Tenant: a.describe(t)}, nil
}

// lastingBackend returns an error for a lasting tenant whose shares are not made for containers here.
func lastingBackend(p control.CreateParams) error {
	b := p.Request.Backend
	if p.Layer != backend.LayerContainer || b == v1alpha1.BackendSlice && p.Request.Profile == "" || b == v1alpha1.BackendTimeslice && p.Request.Profile == "" {
		return nil
	}
	return control.Errorf(control.CodeInvalid, "a share for containers is of backend slice or timeslice on a GPU that is not in MIG mode, and this one is of backend %s: name another with --backend, or another GPU with --gpu", b)
}

// lastingOf is the lasting tenant that was made for a ticket, nil if there is none.
func (a *Agent) lastingOf(ticket string) *tenant {
	if ticket == "" {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.tenants {
		if t.lasts() && t.ready && !t.stopping && t.Ticket != "" && same(t.Ticket, ticket) {
			return t
		}
	}
	return nil
}

// hasDevice reports whether a lasting tenant has that name, whoever's it is. Agent.mu is held.
func (a *Agent) hasDevice(name string) bool {
	for _, t := range a.tenants {
		if t.lasts() && t.Name == name {
			return true
		}
	}
	return false
}

// publishDevice lets containers have a lasting tenant that was made.
func (a *Agent) publishDevice(ctx context.Context, t *tenant) error {
	a.mu.Lock()
	t.ready, t.Unmade = true, false
	a.follow(ctx, t)
	a.announce()
	err := a.save()
	if err == nil {
		a.keep(ctx, t)
	}
	a.mu.Unlock()
	if err != nil {
		return err
	}
	a.step("create-kept")
	return a.config.Devices.Write(t.Name, t.plan.Edits)
}

// dropDevice keeps further containers from getting a tenant.
func (a *Agent) dropDevice(t *tenant) error {
	if !t.lasts() || a.config.Devices == nil {
		return nil
	}
	return a.config.Devices.Remove(t.Name)
}

// vacate lets a lasting tenant end whose processes are gone.
func (a *Agent) vacate(t *tenant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t.vacated = t.stopping && t.lasts()
}

// unmake takes back a lasting tenant that nobody was told of.
func (a *Agent) unmake(ctx context.Context, t *tenant) error {
	t.look.Lock()
	defer t.look.Unlock()
	a.notices.Remove(t.ID)
	wanted := a.wanted(t)
	return errors.Join(a.dropDevice(t), a.makerOf(wanted).Undo(ctx, wanted), a.drop(t))
}

// restoreDevices makes the devices agree with the lasting tenants that an earlier agent left: it makes again what is
// missing, and takes back what nobody was told of.
func (a *Agent) restoreDevices(ctx context.Context) {
	if a.config.Devices == nil {
		return
	}
	if err := a.config.Devices.Sweep(); err != nil {
		a.config.Log.WarnContext(ctx, "cannot remove the devices of shares that are gone", "error", err)
	}
	for _, t := range a.all() {
		if !t.lasts() {
			continue
		}
		err := a.restoreDevice(ctx, t)
		if err == nil {
			continue
		}
		a.config.Log.ErrorContext(ctx, "cannot make a share for containers again", "tenant", t.Name, "user", t.User, "error", err)
		a.events.add(control.Event{Kind: control.EventFault, Tenant: t.Name, User: t.User, Text: "no container can be started with it: " + err.Error()})
	}
}

func (a *Agent) restoreDevice(ctx context.Context, t *tenant) error {
	if t.Unmade {
		return a.unmake(ctx, t)
	}
	plan, err := a.planTenancy(t)
	if err != nil {
		return err
	}
	wanted := a.wanted(t)
	if maker := a.makerOf(wanted); !maker.Complete(wanted) {
		if err := maker.Apply(ctx, plan); err != nil {
			return err
		}
	}
	return a.config.Devices.Write(t.Name, plan.Edits)
}
