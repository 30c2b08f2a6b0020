package agent

import (
	"context"
	"errors"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/process"
)

// rebuild asks the backends for the tenants of a checkpoint that is missing or cannot be
// read. What the last agent had the backend keep of them tells all; only where that
// cannot be read either is a tenant rebuilt from what was granted.
//
// Where the checkpoint is merely missing, what cannot be taken up is most likely
// another agent's, and no event.
func (a *Agent) rebuild(ctx context.Context, missing bool) []record {
	found, err := a.config.Backends.Recover(ctx)
	if err != nil {
		a.config.Log.ErrorContext(ctx, "cannot look for all tenants", "error", err)
	}
	var records []record
	for _, f := range found {
		r, err := a.rebuildOne(f)
		if r != nil {
			records = append(records, *r)
		}
		if err == nil {
			continue
		}
		a.config.Log.ErrorContext(ctx, "cannot take up a tenant as it was", "dir", f.Tenant.Dir, "found", r != nil, "error", err)
		if r == nil && !missing {
			a.events.add(control.Event{Kind: control.EventFault, Tenant: f.Tenant.ID, Text: "it is not counted: " + err.Error()})
		}
	}
	return records
}

// rebuildOne returns nil for a tenant of another agent. Beside a record, the error is
// why not all of it is known.
func (a *Agent) rebuildOne(f backend.Found) (*record, error) {
	unread := f.RecordErr
	if f.Record != nil {
		r, mine, err := a.readKept(f)
		switch {
		case err != nil:
			unread = err
		case mine:
			return r, nil
		default:
			return nil, nil
		}
	}
	if f.Err != nil {
		return nil, errors.Join(f.Err, unread)
	}
	for _, s := range f.Tenant.Shares {
		if a.gpu(s.GPU.UUID).Index < 0 {
			// It is another agent's, or has no record that tells whose it is.
			return nil, unread
		}
	}
	return a.rebuildFromGrant(f), unread
}

// rebuildFromGrant makes a record of what was granted, and to whom. The key of a
// tenancy is not known; a tenancy's id follows from its key, so that whoever asks again
// or releases it finds it.
func (a *Agent) rebuildFromGrant(f backend.Found) *record {
	t := f.Tenant
	r := &record{
		ID: t.ID, Name: t.Name, UID: t.UID, User: process.UserName(t.UID), Worker: t.Worker, Dir: t.Dir, Layer: t.Layer, Created: f.Created,
		Overcommit: t.Overcommit, Rebuilt: true,
	}
	for _, found := range t.Shares {
		s := share{
			UUID: found.GPU.UUID, Limit: found.Limit, Cores: found.Cores,
			ShareConfig: v1alpha1.ShareConfig{Policy: found.Policy, MaxCores: found.MaxCores, Weight: found.Weight, Class: found.Class, Backend: t.Backend},
		}
		if t.Swap {
			s.Swap, s.Kept = true, v1alpha1.Bytes(found.Kept)
		}
		s.Default(s.Cores)
		r.Shares = append(r.Shares, s)
	}
	if t.Layer == backend.LayerContainer && ofTenancy(t.ID) {
		r.Tenancy = rebuiltTenancy(r, f.NameCut)
		r.User = r.Tenancy.Namespace
		return r
	}
	if t.Layer != backend.LayerContainer {
		r.Holder = a.makerOf(t).Holder(t)
	}
	return r
}

// rebuiltTenancy has no key. Of a name whose end is missing, the namespace and
// the claim are not taken.
func rebuiltTenancy(r *record, nameCut bool) *Tenancy {
	t := &Tenancy{Name: r.Name}
	if parts := strings.Split(r.Name, "/"); len(parts) > 1 && !nameCut {
		t.Namespace, t.Claim = parts[0], parts[1]
	}
	for _, s := range r.Shares {
		t.Shares = append(t.Shares, TenancyShare{UUID: s.UUID, Memory: s.Limit, Cores: s.Cores, Config: s.ShareConfig})
	}
	return t
}
