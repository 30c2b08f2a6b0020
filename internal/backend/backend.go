// Package backend is how shares are made real: what the agent asks of a backend
// and what a backend answers. The backends themselves are the packages below it.
package backend

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/process"
)

// ErrTenant marks a tenant whose shares a backend cannot make.
var ErrTenant = errors.New("invalid tenant")

// Backend makes shares of one kind real, and is the only one that knows how:
// what its tenants use, who runs in them and what is left of them after a
// restart is asked of it. A backend may also be a [Changer], a [Former], a [Notifier], and a
// Source of internal/agent/pacing: one that opens its tenants' pages, so that the
// agent divides their GPU time.
//
// Functions may be called at the same time unless they say otherwise.
type Backend interface {
	Maker
	Observer
	Processes
}

// Maker makes tenants and removes them.
type Maker interface {
	// Discover lists the GPUs of which the backend can make shares.
	Discover(ctx context.Context) ([]GPU, error)
	// Plan works out what a tenant needs. It changes nothing. A tenant whose
	// shares cannot be made gives [ErrTenant]. The agent's lock may be held: Plan
	// must not wait for a function of a [Listener] nor ask the driver for long.
	Plan(t Tenant) (*Plan, error)
	// Apply carries a plan out. A plan that was carried out already is left as it
	// is, and one that fails halfway is undone.
	Apply(ctx context.Context, p *Plan) error
	// Undo removes everything that was made for a tenant, also after a partial
	// Apply. That there is nothing is no error: Undo may follow an Apply that
	// failed and undid itself, or another Undo. The tenant's ID and Dir are enough.
	Undo(ctx context.Context, t Tenant) error
	// Health returns why no new shares can be made, or nil.
	Health(ctx context.Context) error
}

// Observer tells what becomes of tenants.
type Observer interface {
	// Look tells what a tenant uses and who lives in it, after what dead processes
	// held was freed. Beside an error the figures are what is known all the same.
	// Calls for one tenant must not overlap.
	Look(ctx context.Context, t Tenant) (Figures, error)
	// Alive reports whether a process of the tenant lives. It changes nothing. It
	// may run beside Look, Apply and Undo of the same tenant.
	Alive(t Tenant) (bool, error)
	// Complete reports whether all that Apply made for the tenant is still there.
	// It is asked about tenants of a cluster only, before they are prepared again.
	Complete(t Tenant) bool
	// Recover finds the tenants that an earlier agent made, for an agent that lost
	// its checkpoint.
	Recover(ctx context.Context) ([]Found, error)
}

// Processes tells to which tenant a process belongs, according to the kernel:
// what a tenant says of its processes is not believed.
type Processes interface {
	// Container is the ID of the tenant in whose container a process runs, "" for
	// any other process.
	Container(pid int) (tenant string)
	// Has reports whether a process belongs to a tenant. Of a tenant of root's also what
	// became another user there does, see [github.com/divvy-gpu/divvy/internal/tenantdir].
	Has(t Tenant, pid int) bool
	// Owner is the ID of the one of the tenants, which are no containers', to which a
	// process belongs, "" if there is none. unread is true where that is not known because
	// the process has more files open, mapped or mounted than anybody reads.
	Owner(tenants []Tenant, pid int) (tenant string, unread bool)
	// Counts reports whether what a process uses is in the figures of one of the tenants.
	Counts(tenants []Tenant, id process.ID) bool
	// Holder is the oldest process that was started with what was made for a
	// tenant, the zero ID if there is none. The tenant may be as Recover found it.
	Holder(t Tenant) process.ID
}

// Changer is a backend whose shares can change while their tenant runs.
type Changer interface {
	// Change makes the tenant's shares as t has them. It does not run beside Look of
	// the same tenant. Each start of an agent calls it for the tenants that were
	// saved, also if nothing changed, because the last agent may have died before it
	// made what it had saved. A tenant of which nothing is there is an error, and a
	// GPU may be gone then, see [Share].
	Change(ctx context.Context, t Tenant) error
}

// Extension is a backend that makes shares as another one does and adds something of its own. The other one finds and
// watches its tenants.
type Extension interface {
	Extends() Backend
}

// Former is a backend that prepares a whole GPU for its shares, and changes it for that, such as its modes. Calls about
// one GPU do not overlap. The agent's lock is not held.
type Former interface {
	// Enter prepares a GPU. It is called before the first share there is planned, by each start of an agent for a GPU
	// that has such shares or is given this backend, and when what is given with the backend changes. A GPU that is
	// prepared already is left as it is. A GPU that somebody uses is not changed: the error names who does.
	Enter(ctx context.Context, gpu GPU) error
	// Leave undoes what Enter did, also after an Enter that failed or an agent that died on the way. It is called when no
	// share is left and nobody gives the GPU this backend, and by each start of an agent for such a GPU: that there is
	// nothing to undo is no error. What others changed since is left.
	Leave(ctx context.Context, gpu GPU) error
}

// Opener is a backend that can give a container GPUs without a share.
type Opener interface {
	// Open returns what a container needs to use the GPUs, with the driver's own libraries. It changes nothing. A GPU that
	// the machine has lost is left out, unless it is the only one.
	Open(gpus []GPU) (edits.Edits, error)
}

// Keeper is a backend that keeps the agent's own record of a tenant with what it made
// for it, so that an agent that lost its checkpoint finds every term again. Apply
// stores the record of the plan unless there is one already.
type Keeper interface {
	// Keep replaces the record of a tenant that was made. It does not run beside Apply
	// and Undo of the same tenant.
	Keep(t Tenant) error
}

// Adopter is a backend that can take over tenants which another user's agent made.
type Adopter interface {
	// Strangers finds the tenants that an agent of that user made below a place. What is
	// found is that user's word. Live says which have processes, and is the kernel's.
	Strangers(ctx context.Context, place string, uid int) ([]Stranger, error)
	// Adopt makes the tenant the agent's own: what its shares say then lies where only
	// the agent writes, in t.Dir, and is told to the processes as far as they listen.
	// from is the directory in which it was found. To adopt it again changes nothing.
	Adopt(ctx context.Context, from string, t Tenant) error
	// Told is what a tenant's processes are told that they were granted. Of a tenant
	// that was taken over that is its user's word.
	Told(t Tenant) (Tenant, error)
}

// Stranger is a tenant that was made by another user's agent.
type Stranger struct {
	Found
	Live bool
	// Since is when the oldest of its processes started, zero if none is found. It is
	// the kernel's.
	Since time.Time
}

// Notifier is a backend that notices at once what its tenants do. The tenants of
// any other backend are looked at from time to time.
type Notifier interface {
	Notices() (Notices, error)
}

// Notices tells what tenants do.
type Notices interface {
	// Add begins to watch a tenant that was made. A tenant may be added again. The
	// agent's lock may be held: Add must not wait for a function of the [Listener]
	// nor ask the driver for long.
	Add(t Tenant) error
	// Remove forgets a tenant.
	Remove(id string)
	// Run tells the listener what happens, until Close or until ctx is done.
	Run(ctx context.Context, to Listener)
	Close()
}

// Listener is told what tenants do. Whoever calls it holds no lock that a function
// of the backend or of [Notices] needs.
type Listener struct {
	// Death says that a process of a tenant may have ended. It waits for the
	// agent's lock at most.
	Death func(tenant string)
	// Stir says that a tenant that did nothing for a while does something. It
	// returns at once.
	Stir func(tenant string)
	// Lost says that some notices were lost. It returns when every tenant was
	// looked at, which takes as long as the looks do.
	Lost func()
}

// Layer names what stands between a tenant and the driver.
type Layer string

// The layers.
const (
	// LayerNamespace covers the driver's files in a mount namespace.
	LayerNamespace Layer = "namespace"
	// LayerEnv only puts our library first on LD_LIBRARY_PATH: a tenant that
	// clears it is reported, not stopped.
	LayerEnv Layer = "env"
	// LayerContainer mounts our libraries into a container that a runtime makes.
	LayerContainer Layer = "container"
)

// GPU is what a backend knows of a GPU. Amounts are bytes.
type GPU struct {
	Index int
	UUID  string
	Name  string
	// PCI is the bus address as NVML prints it.
	PCI string
	// DeviceID is the device's PCI id with the vendor's in the low half, such as 0x233010DE; 0 where it is not known.
	DeviceID        uint32
	Total, Reserved uint64
	// ContextBytes is what the first context of a process takes.
	ContextBytes uint64
	// Unit is in how many bytes the backend counts: it rounds limits down to whole
	// units. 0 stands for 1.
	Unit uint64
	// Instance is set for a MIG instance, which is like a GPU for its shares: UUID and Total are then the instance's,
	// and all else is the GPU's on which it lies.
	Instance Instance
}

// Capacity is what the GPU has for tenants.
func (g GPU) Capacity() uint64 {
	return g.Total - min(g.Reserved, g.Total)
}

// Tenant is whom shares are for. Backends are given all of it, but for the
// LibraryPath and the Record.
type Tenant struct {
	ID   string
	Name string
	// Dir is the plan's, empty before there is one and where the plan has none.
	Dir string
	// UID is who will run it.
	UID int
	// Worker is the user as whom a worker of its own uses the GPU in its place, 0 where the tenant's user does. It is nobody
	// else's as long as the tenant is there.
	Worker int
	// Layer is what whoever starts the tenant can set up.
	Layer Layer
	// LibraryPath is the tenant's LD_LIBRARY_PATH, split. Only Plan is given it.
	LibraryPath []string
	Overcommit  bool
	// Backend makes all of its shares.
	Backend v1alpha1.Backend
	// Swap is true for swap shares: linear memory beyond Kept is managed, and has turns on the GPU.
	Swap bool
	// Suspends is true for shares that may be suspended, so that their processes tell of their calls.
	Suspends bool
	// MPSPipe is where the tenant's processes find the control daemon of their GPU: the pipe directory
	// as they see it, an absolute path. Only tenants of [v1alpha1.BackendMPS] have one, and all of them.
	MPSPipe string
	Shares  []Share
	// Changed is when an agent changed the shares last, in nanoseconds since 1970. Of two
	// tellings the later one counts, whoever made it.
	Changed uint64
	// Record is what the agent keeps of the tenant, for [Keeper]. Only Plan and Keep are
	// given it.
	Record []byte
}

// User is whose processes use the GPU, and whose pages the tenant's are.
func (t Tenant) User() int { return cmp.Or(t.Worker, t.UID) }

// Share is what the tenant gets of one GPU.
type Share struct {
	// GPU has an Index of -1, and nothing else but the UUID, if it is no longer
	// there: an agent that starts may find that a saved tenant's GPU is gone.
	GPU GPU
	// Limit is in bytes. ProcessLimit bounds each process alone, for backend mps; 0 leaves it at Limit.
	Limit        uint64
	ProcessLimit uint64
	// Kept is the part of the Limit of a swap share that never leaves the GPU; 0 for any other share.
	Kept uint64
	// Cores is in percent, 0 to 100.
	Cores int
	// MaxCores is the percentage up to which a burst share takes idle time, its
	// cores to 100; 0 for other policies.
	MaxCores int
	Weight   int
	Policy   v1alpha1.Policy
	Class    v1alpha1.Class
	// Owed is the GPU time in ns that the share has to pay before its first launch.
	// Only Plan is given it.
	Owed uint64
}
