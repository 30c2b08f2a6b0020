package agent

import (
	"context"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/process"
)

// rebuild asks the backend for the tenants of a checkpoint that cannot be read:
// what is granted, and to whom. The backend cannot tell who asked, nor the key of
// a tenancy; a tenancy's id follows from its key, so that whoever asks again or
// releases it finds it.
func (a *Agent) rebuild(ctx context.Context) []record {
	found, err := a.config.Backend.Recover(ctx)
	if err != nil {
		a.config.Log.ErrorContext(ctx, "cannot look for all tenants", "error", err)
	}
	var records []record
	for _, f := range found {
		if f.Err != nil {
			a.config.Log.ErrorContext(ctx, "cannot take up a tenant again", "dir", f.Tenant.Dir, "error", f.Err)
			a.events.add(control.Event{Kind: control.EventFault, Tenant: f.Tenant.ID, Text: "it is not counted: " + f.Err.Error()})
			continue
		}
		if r := a.rebuildOne(f); r != nil {
			records = append(records, *r)
		}
	}
	return records
}

// rebuildOne returns nil for a tenant of another agent, which has shares of GPUs
// that are not this agent's.
func (a *Agent) rebuildOne(f backend.Found) *record {
	t := f.Tenant
	r := &record{
		ID: t.ID, Name: t.Name, UID: t.UID, User: process.UserName(t.UID), Dir: t.Dir, Layer: t.Layer, Created: f.Created,
		Overcommit: t.Overcommit, Rebuilt: true,
	}
	for _, found := range t.Shares {
		if a.gpu(found.GPU.UUID).Index < 0 {
			return nil
		}
		s := share{
			UUID: found.GPU.UUID, Limit: found.Limit, Cores: found.Cores,
			ShareConfig: v1alpha1.ShareConfig{Policy: found.Policy, MaxCores: found.MaxCores, Weight: found.Weight, Class: found.Class},
		}
		s.Default(s.Cores)
		r.Shares = append(r.Shares, s)
	}
	if t.Layer == backend.LayerContainer {
		r.Tenancy = rebuiltTenancy(r, f.NameCut)
		r.User = r.Tenancy.Namespace
		return r
	}
	r.Holder = a.config.Backend.Holder(t)
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
