package agent

import (
	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
)

// Given returns the backends that the administrator gives GPUs, by UUID, and a channel that is closed when that may be
// otherwise. A GPU that is given none is left out.
func (a *Agent) Given() (map[string]v1alpha1.Backend, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	given := map[string]v1alpha1.Backend{}
	for _, gpu := range a.gpus {
		if b, ok := a.config.Rules.Backend(agentconfig.GPU{Index: gpu.Index, UUID: gpu.UUID}); ok {
			given[gpu.UUID] = b
		}
	}
	return given, a.changed
}
