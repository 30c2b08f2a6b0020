package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/simgpu/simfiles"
)

// kept is what a [backend.Keeper] keeps of a tenant: all that the checkpoint has of it.
type kept struct {
	// Agent is the path of the checkpoint of the agent that made the tenant. Agents of
	// several simulated machines keep their tenants in one place.
	Agent  string `json:"agent"`
	Tenant record `json:"tenant"`
}

// keptFile encodes what is kept. The version is raised with every change of record for
// which the checkpoint's is.
var keptFile = checkpoint.NewFile("a tenant's record", "tenant", 4,
	checkpoint.Older[kept]{Version: 1, Decode: checkpoint.Strict[kept]}, checkpoint.Older[kept]{Version: 2, Decode: checkpoint.Strict[kept]},
	checkpoint.Older[kept]{Version: 3, Decode: checkpoint.Strict[kept]})

// keptOf is a record as a backend keeps it.
func (a *Agent) keptOf(r *record) ([]byte, error) {
	return keptFile.Encode(kept{Agent: a.config.Checkpoint, Tenant: *r})
}

// KeptBy is the checkpoint of the agent that made the tenant whose record this is, empty
// where it cannot be read.
func KeptBy(record []byte) string {
	k, err := keptFile.Decode(record)
	if err != nil {
		return ""
	}
	return k.Agent
}

// HolderOf is the process that asked for the tenant whose record this is, zero where it cannot be read.
func HolderOf(record []byte) process.ID {
	k, err := keptFile.Decode(record)
	if err != nil {
		return process.ID{}
	}
	return k.Tenant.Holder
}

// MachineOf is the name of the simulated machine whose own agent made the tenant of this record, "" for the real machine.
func MachineOf(record []byte) string {
	k, err := keptFile.Decode(record)
	if err != nil {
		return ""
	}
	dir := filepath.Dir(k.Agent)
	if machines := filepath.Dir(dir); machines == simfiles.Instances(filepath.Dir(machines)) {
		return filepath.Base(dir)
	}
	return ""
}

// planWithRecord has the backend plan a tenant with its record in it.
func (a *Agent) planWithRecord(t backend.Tenant, r *record) (*backend.Plan, error) {
	data, err := a.keptOf(r)
	if err != nil {
		return nil, err
	}
	t.Record = data
	return a.makerOf(t).Plan(t)
}

// keep has the backend keep the present record of a tenant. The checkpoint has it
// already, so an error is only told. Agent.mu is held.
func (a *Agent) keep(ctx context.Context, t *tenant) {
	wanted := a.tenantOf(&t.record)
	keeper, ok := a.makerOf(wanted).(backend.Keeper)
	if !ok || t.ended || !t.planned() || t.bare() {
		return
	}
	data, err := a.keptOf(&t.record)
	if err == nil {
		wanted.Record = data
		err = keeper.Keep(wanted)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // without its directory a tenant is about to end
		a.config.Log.WarnContext(ctx, "cannot keep a tenant's record beside its pages", "tenant", t.Name, "error", err)
	}
}

// keepAll keeps what changed since the last time without being granted, as the most
// memory that was ever used.
func (a *Agent) keepAll(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.tenants) == 0 {
		return
	}
	for _, t := range a.tenants {
		a.keep(ctx, t)
	}
	if err := a.save(); err != nil {
		a.config.Log.ErrorContext(ctx, "cannot save tenants", "error", err)
	}
}

// readKept returns the record that was found with a tenant; mine is false if another
// agent keeps it.
func (a *Agent) readKept(f backend.Found) (r *record, mine bool, err error) {
	k, err := keptFile.Decode(f.Record)
	if err != nil {
		return nil, false, err
	}
	if k.Agent != a.config.Checkpoint {
		return nil, false, nil
	}
	r = &k.Tenant
	if contained := f.Tenant.Layer == backend.LayerContainer; r.ID != f.Tenant.ID || (r.Layer == backend.LayerContainer) != contained || (r.Tenancy != nil) != ofTenancy(r.ID) {
		return nil, true, fmt.Errorf("%w: it is that of %s", checkpoint.ErrDamaged, r.ID)
	}
	r.Dir = f.Tenant.Dir
	return r, true, nil
}
