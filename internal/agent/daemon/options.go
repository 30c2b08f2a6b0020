package daemon

import (
	"cmp"
	"os"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/edits/cdi"
	"github.com/divvy-gpu/divvy/internal/history/store"
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

// history is where the agent keeps what shares did, nil for nowhere. A user turns that of an own agent off by a variable:
// it has no configuration.
func (o Options) history(rules *agentconfig.Config) *store.Store {
	told, dir := rules.History(), store.Place(o.Endpoint.Rundir, false)
	if o.Endpoint.Simgpu != "" {
		dir = store.Place(o.Endpoint.Dir(), true)
	}
	if told.Off || dir == "" || !o.shared() && os.Getenv(store.Off) == store.OffValue {
		return nil
	}
	return store.New(store.Config{
		Dir: dir, Inside: o.Endpoint.Simgpu, Now: time.Now,
		Limits: store.Limits{Days: cmp.Or(told.Days, store.Usual.Days), Bytes: cmp.Or(int64(told.Bytes), store.Usual.Bytes)},
	})
}
