package daemon

import (
	"cmp"
	"os"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/edits/cdi"
)

// simgpu is the directory of the simulated machine that the agent serves, "" for a real
// one.
func (o Options) simgpu() string { return cmp.Or(o.Simgpu, o.Endpoint.Simgpu) }

// shared reports whether the agent serves every user.
func (o Options) shared() bool {
	return os.Getuid() == 0 && !o.Ephemeral
}

// devices are where containers find the shares that last, nil for an agent that makes none.
func (o Options) devices() agent.Devices {
	if !o.shared() || o.Containers == "" {
		return nil
	}
	return cdi.Shares{Dir: o.Containers, Kind: v1alpha1.CDIKind}
}
