package agent

import (
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/process"
)

// record is what the checkpoint keeps of a tenant.
type record struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	UID  int    `json:"uid"`
	User string `json:"user"`
	// Worker is the user as whom the agent runs a worker in the tenant's place, 0 where it runs none.
	Worker     int           `json:"worker,omitempty"`
	Dir        string        `json:"dir"`
	Layer      backend.Layer `json:"layer"`
	Command    []string      `json:"command,omitempty"`
	Created    time.Time     `json:"created"`
	Overcommit bool          `json:"overcommit,omitempty"`
	// Holder is the process that asked, zero where it cannot be seen.
	Holder process.ID `json:"holder"`
	Shares []share    `json:"shares"`
	// Changed is when an agent changed the shares last, in nanoseconds since 1970: see
	// hear.
	Changed uint64 `json:"changed,omitempty"`
	// Tenancy is what the cluster asked for, nil for a tenant of this machine: one of
	// [backend.LayerContainer] lasts then.
	Tenancy *Tenancy `json:"tenancy,omitempty"`
	// Unmade is true until the backend has made the tenancy or the lasting tenant.
	Unmade bool `json:"unmade,omitempty"`
	// Ticket is that of the request: its asker knows it, and asks the next agent with it if
	// this one ends before it answers. It is empty if the asker gave none and did not wait.
	Ticket string `json:"ticket,omitempty"`
	// Origin is the directory in which a user's own agent made the tenant, empty for any
	// other.
	Origin string `json:"origin,omitempty"`
	// Cooperative is true for a tenant whose processes read what its user can write.
	Cooperative bool `json:"cooperative,omitempty"`
	// Suspended is how far the tenant is off its GPUs, nil for one that is not.
	Suspended *suspended `json:"suspended,omitempty"`
	// Remote is who uses the shares from another host, nil for a command of this one.
	Remote *control.Remote `json:"remote,omitempty"`
	// Away is where the tenant's memory counts while it is suspended.
	Away Away `json:"away,omitempty"`
	// Rebuilt is true if the checkpoint and the record were lost, and only what was
	// granted was found.
	Rebuilt bool `json:"rebuilt,omitempty"`
}

// share is what a tenant was granted of one GPU, in bytes and percent.
type share struct {
	UUID  string `json:"uuid"`
	Limit uint64 `json:"limit"`
	// Before is what the share may still have in use since its limit was lowered below
	// that, 0 where it was not. It counts, and only shrinks: see giveBack. BeforeKept is the same of what a swap share keeps.
	Before     uint64 `json:"before,omitempty"`
	BeforeKept uint64 `json:"beforeKept,omitempty"`
	// Turn is for how much of what a swap share does not keep its GPU has room, 0 where that is not known: as much as is left.
	Turn  uint64 `json:"turn,omitempty"`
	Cores int    `json:"cores,omitempty"`
	// Owed is the GPU time in ns that the share had to pay when it was made.
	Owed uint64 `json:"owed,omitempty"`
	// Peak is the largest use that was ever seen.
	Peak uint64 `json:"peak,omitempty"`
	// Whole excludes every other tenant from the GPU.
	Whole bool `json:"whole,omitempty"`
	// Instance is the MIG instance on which the share is, nil for none. Its UUID is empty until it is made.
	Instance *backend.Instance `json:"instance,omitempty"`
	// Made is true for a part of an instance that was made for the share, or for an earlier one of its user.
	Made bool `json:"made,omitempty"`

	v1alpha1.ShareConfig
}

// owns reports whether a process is the tenant's user's own, or of its worker's user.
func (r *record) owns(id process.ID) bool {
	return id.BelongsTo(r.UID) || r.Worker != 0 && id.BelongsTo(r.Worker)
}

// backend makes all of the tenant's shares.
func (r *record) backend() v1alpha1.Backend { return r.Shares[0].Backend }

// makerOf is the backend of a tenant.
func (a *Agent) makerOf(t backend.Tenant) backend.Backend { return a.config.Backends.Of(t.Backend) }

// saved is the agent's checkpoint.
type saved struct {
	Tenants []record `json:"tenants"`
	// Queue are the requests that wait, in order.
	Queue []waiting `json:"queue,omitempty"`
	// Debts are what shares that have ended did not pay.
	Debts []debt `json:"debts,omitempty"`
	// Learnt is what was learnt of requests for MIG instances.
	Learnt []alloc.Learnt `json:"learnt,omitempty"`
	// Laying are the layouts that are being applied.
	Laying []laying `json:"laying,omitempty"`
}

// newCheckpoint names the agent's checkpoint.
func newCheckpoint(path string) *checkpoint.File[saved] {
	// Version 2 lacks what was learnt, the layouts, and for whom instances were made; version 3 who uses shares from other hosts;
	// version 4 what of shares is in host memory.
	return checkpoint.NewFile(path, "tenants", 5,
		checkpoint.Older[saved]{Version: 1, Decode: decodeV1}, checkpoint.Older[saved]{Version: 2, Decode: checkpoint.Strict[saved]},
		checkpoint.Older[saved]{Version: 3, Decode: checkpoint.Strict[saved]}, checkpoint.Older[saved]{Version: 4, Decode: checkpoint.Strict[saved]})
}

// The types of version 1, frozen: tenants of one machine only.
type (
	savedV1 struct {
		Tenants []recordV1 `json:"tenants"`
	}
	recordV1 struct {
		ID         string    `json:"id"`
		Name       string    `json:"name"`
		UID        int       `json:"uid"`
		User       string    `json:"user"`
		Dir        string    `json:"dir"`
		Layer      string    `json:"layer"`
		Command    []string  `json:"command,omitempty"`
		Created    time.Time `json:"created"`
		Overcommit bool      `json:"overcommit,omitempty"`
		Holder     holderV1  `json:"holder"`
		Shares     []shareV1 `json:"shares"`
	}
	holderV1 struct {
		PID   int    `json:"pid"`
		Start uint64 `json:"start"`
	}
	shareV1 struct {
		UUID     string `json:"uuid"`
		Limit    uint64 `json:"limit"`
		Cores    int    `json:"cores,omitempty"`
		Peak     uint64 `json:"peak,omitempty"`
		Policy   string `json:"policy,omitempty"`
		MaxCores int    `json:"maxCores,omitempty"`
		Weight   int    `json:"weight,omitempty"`
		Class    string `json:"class,omitempty"`
		Backend  string `json:"backend,omitempty"`
	}
)

func decodeV1(data []byte) (saved, error) {
	old, err := checkpoint.Strict[savedV1](data)
	if err != nil {
		return saved{}, err
	}
	var state saved
	for _, o := range old.Tenants {
		r := record{
			ID: o.ID, Name: o.Name, UID: o.UID, User: o.User, Dir: o.Dir, Layer: backend.Layer(o.Layer), Command: o.Command,
			Created: o.Created, Overcommit: o.Overcommit, Holder: process.ID(o.Holder),
		}
		for _, s := range o.Shares {
			r.Shares = append(r.Shares, share{
				UUID: s.UUID, Limit: s.Limit, Cores: s.Cores, Peak: s.Peak,
				ShareConfig: v1alpha1.ShareConfig{
					Policy: v1alpha1.Policy(s.Policy), MaxCores: s.MaxCores, Weight: s.Weight,
					Class: v1alpha1.Class(s.Class), Backend: v1alpha1.Backend(s.Backend),
				},
			})
		}
		state.Tenants = append(state.Tenants, r)
	}
	return state, nil
}
