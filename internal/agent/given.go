package agent

import (
	"cmp"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// Given returns the forms that the administrator gives GPUs, by UUID, and a channel that is closed when that may be
// otherwise. A GPU that is given none is left out.
func (a *Agent) Given() (map[string]agentconfig.Form, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	given := map[string]agentconfig.Form{}
	for _, gpu := range a.gpus {
		if form, _ := a.config.Forms.Of(gpu); form.Backend != "" {
			given[gpu.UUID] = form
		}
	}
	return given, a.changed
}

// ofTenants adds to a GPU why its form, which its tenants have, cannot be made now. Agent.mu is held.
func (a *Agent) ofTenants(gpu backend.GPU, g *alloc.GPU) {
	if f := a.formings[gpu.UUID]; g.Form != "" && g.Form == string(f.has) {
		g.Fault = cmp.Or(g.Fault, f.fault)
	}
}

// intervals are the lengths of time slices that claims want which have whole GPUs or are about to, by UUID. Agent.mu is
// held.
func (a *Agent) intervals() map[string]string {
	wanted := map[string]string{}
	for uuid, f := range a.formings {
		if f.interval != "" {
			wanted[uuid] = f.interval
		}
	}
	for _, t := range a.tenants {
		if t.Tenancy == nil {
			continue
		}
		for _, s := range t.Tenancy.Shares {
			if s.Interval != "" {
				wanted[s.UUID] = s.Interval
			}
		}
	}
	return wanted
}

// processLimit bounds each process of a tenancy's share of a GPU, in bytes; 0 does not.
func (r *record) processLimit(uuid string) uint64 {
	if r.Tenancy == nil {
		return 0
	}
	for _, s := range r.Tenancy.Shares {
		if s.UUID == uuid && s.Config.Backend == v1alpha1.BackendMPS {
			return s.ProcessMemory
		}
	}
	return 0
}
