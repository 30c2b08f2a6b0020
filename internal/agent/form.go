package agent

import (
	"cmp"
	"fmt"
	"math/bits"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// given reports whether the administrator says which backend the shares of each GPU have.
func (a *Agent) given() bool {
	_, ok := a.config.Rules.Backend(agentconfig.GPU{})
	return ok
}

// serves reports whether shares of a backend may ever be on a GPU.
func (a *Agent) serves(gpu backend.GPU, b v1alpha1.Backend) bool {
	want, ok := a.config.Rules.Backend(agentconfig.GPU{Index: gpu.Index, UUID: gpu.UUID})
	return !ok || cmp.Or(b, v1alpha1.BackendSlice) == want
}

// form adds to a GPU, whose tenants are known, the backend that the administrator gave it.
// Shares of another one stay, but none joins them.
func (a *Agent) form(gpu backend.GPU, g *alloc.GPU) {
	want, ok := a.config.Rules.Backend(agentconfig.GPU{Index: gpu.Index, UUID: gpu.UUID})
	switch {
	case !ok:
	case g.Form == "":
		g.Form = string(want)
	case g.Form != string(want):
		g.Fault = cmp.Or(g.Fault, fmt.Sprintf("the administrator gave it backend %s, and its shares of backend %s have to end first", want, g.Form))
	}
}

// otherBackend returns an error for a request of a backend that is not here, or that the administrator gave too few
// GPUs: to wait would be in vain.
func (a *Agent) otherBackend(r v1alpha1.ShareRequest) error {
	if !a.config.Backends.Has(r.Backend) {
		return control.Errorf(control.CodeInvalid, "this agent makes no shares of backend %s", r.Backend)
	}
	var able, unable gpuSet
	for i, gpu := range a.gpus {
		switch {
		case len(r.Among) > 0 && !a.setOf(r.Among).has(1<<i):
		case a.serves(gpu, r.Backend):
			able |= 1 << i
		default:
			unable |= 1 << i
		}
	}
	if unable == 0 || bits.OnesCount64(uint64(able)) >= r.GPUs {
		return nil
	}
	another := v1alpha1.BackendTimeslice
	if r.Backend == another {
		another = v1alpha1.BackendSlice
	}
	return control.Errorf(control.CodeInvalid, "the administrator gave %s backend %s, and the request is for backend %s: add --backend %[2]s, or name other GPUs",
		a.namesOf(unable), another, r.Backend)
}
