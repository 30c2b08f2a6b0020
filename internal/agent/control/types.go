package control

import (
	"fmt"
	"os"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/edits"
)

// ProtocolVersion is raised when an older peer would misunderstand a newer one.
const ProtocolVersion = 2

// Layer names what stands between a tenant and the driver (docs/design/request.md).
type Layer = backend.Layer

// The layers: the first two of a tenant started by `divvy run`.
const (
	LayerNamespace = backend.LayerNamespace
	LayerEnv       = backend.LayerEnv
	// LayerContainer is that of a tenant for containers, which lasts until it is stopped.
	LayerContainer = backend.LayerContainer
)

// AnotherGPU advises a requester to choose one.
const AnotherGPU = "choose another GPU"

// Info describes an agent.
type Info struct {
	Protocol  int    `json:"protocol"`
	PID       int    `json:"pid"`
	UID       int    `json:"uid"`
	User      string `json:"user"`
	Ephemeral bool   `json:"ephemeral"`
	// Version is the agent's, empty for one that is older than this field.
	Version string `json:"version,omitempty"`
	// Driver is the driver's version as NVML reports it.
	Driver string `json:"driver"`
	// CUDA is the driver's CUDA version, such as 12040 for 12.4.
	CUDA int `json:"cuda"`
	// Simgpu is the simulated machine's instance directory, empty on a real one.
	Simgpu string `json:"simgpu,omitempty"`
	// MachinesOnly is true for an agent that gives devices to virtual machines and serves no shares.
	MachinesOnly bool `json:"machinesOnly,omitempty"`
	// Config is the configuration with which the agent started, and ConfigSum a digest of
	// its content; both are empty without one.
	Config    string `json:"config,omitempty"`
	ConfigSum string `json:"configSum,omitempty"`
}

// CreateParams asks for a tenant. It is held by the process that asks, also when
// that becomes another program by execve(2), and by the connection, which
// children may inherit. It ends when both have ended and no process of the
// tenant has a slot. After a restart of the agent the process alone holds it.
// A tenant of [LayerContainer] is held by nobody: it lasts until it is stopped, and only root may ask for one.
type CreateParams struct {
	Request v1alpha1.ShareRequest `json:"request"`
	// Layer is what the caller can set up: namespace where it is allowed.
	Layer Layer `json:"layer"`
	// Command is shown by lists.
	Command []string `json:"command,omitempty"`
	// LibraryPath is the caller's LD_LIBRARY_PATH, split: copies of the
	// driver found there are covered too.
	LibraryPath []string `json:"libraryPath,omitempty"`
	// Environment is what the caller has of the variables that a worker takes from it, for backend remote
	// ([edits.DriverVariables]).
	Environment []string `json:"environment,omitempty"`
	// For is the user, by number, whose the tenant is to be and whose limits count; nil is who asks. Only a tenant
	// of [LayerContainer] can be another user's.
	For *int `json:"for,omitempty"`
	// Remote is who uses the share from another host, nil for a command of this one.
	Remote *Remote `json:"remote,omitempty"`
	// Wait queues the request until it fits instead of refusing it.
	Wait bool `json:"wait,omitempty"`
	// Ticket is a secret of 16 to 64 bytes that the asker makes for the request, or was told
	// when it began to wait. An asker that got no answer because the agent ended gives the
	// next agent the same: that gives the request its place back, and what the first agent
	// granted for it ends. One that is not known gives nothing.
	Ticket string `json:"ticket,omitempty"`
	// Since is since when the asker has waited, as the last agent told, zero for one who was
	// not told. An agent that has lost who waited goes by that, but by no time before the
	// asker's process started.
	Since time.Time `json:"since,omitzero"`
}

// Queued tells who waits their place, before the answer.
type Queued struct {
	// Ticket is for the next agent, should this one end. Nobody else knows it.
	Ticket string `json:"ticket"`
	// Since is since when the request waits.
	Since time.Time `json:"since,omitzero"`
	// Place is 1 for the request that is tried first on the GPUs that can serve it, of so
	// many that wait for any of these.
	Place  int    `json:"place"`
	Of     int    `json:"of"`
	Reason string `json:"reason"`
}

// Created is a tenant that is ready to start.
type Created struct {
	Tenant Tenant `json:"tenant"`
	// Edits are to be applied by the caller, in order.
	Edits edits.Edits `json:"edits"`
	// Worker is to be started by the caller before the command, unless the agent has; nil where the command uses the GPU itself.
	Worker *edits.Worker `json:"worker,omitempty"`
	// Served is whether the agent has started the worker, whose life comes with the answer: see [Created.Hand].
	Served bool `json:"served,omitempty"`

	life *os.File
}

// Hand implements [Hander]: it is the life of a worker that the agent has started, which ends with the last process that has
// it; nil for none.
func (c *Created) Hand() *os.File { return c.life }

// Serve notes that the agent has started a worker, and its life.
func (c *Created) Serve(life *os.File) { c.Served, c.life = true, life }

// Tenant is a process group that holds shares.
type Tenant struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	UID  int    `json:"uid"`
	User string `json:"user"`
	// Dir is the tenant directory: pages and libraries.
	Dir     string    `json:"dir"`
	Layer   Layer     `json:"layer"`
	Command []string  `json:"command,omitempty"`
	Created time.Time `json:"created"`
	// Until is when its user's time limit ends it, and Idle since when it has used no
	// GPU, if that is long.
	Until *time.Time `json:"until,omitempty"`
	Idle  *time.Time `json:"idle,omitempty"`
	// Suspended is set while the driver has the tenant's processes off their GPUs, or brings them there or back.
	Suspended *Suspended `json:"suspended,omitempty"`
	// Ending says who ends it or what, while that is under way; empty otherwise.
	Ending string `json:"ending,omitempty"`
	// Device is the qualified name of the CDI device by which containers get the tenant's shares, empty for a tenant
	// that has none and for one in a cluster.
	Device string `json:"device,omitempty"`
	// Namespace, Claim and Pods are those of a tenant in a cluster, empty otherwise.
	Namespace string   `json:"namespace,omitempty"`
	Claim     string   `json:"claim,omitempty"`
	Pods      []string `json:"pods,omitempty"`
	// Container is the one container that a tenant in a cluster is for, empty where several are.
	Container string `json:"container,omitempty"`
	// Rebuilt is true for a tenant of which only its pages told, after the
	// agent's checkpoint and its record were lost.
	Rebuilt bool `json:"rebuilt,omitempty"`
	// Cooperative is true for a tenant that was taken over from its user's own agent:
	// its processes read their limits from a page that the user can write to.
	Cooperative bool `json:"cooperative,omitempty"`
	// Remote is who uses the shares from another host, nil for a command of this one: the word of who asked.
	Remote *Remote `json:"remote,omitempty"`
	// Held is true while the process that asked for the tenant, or its
	// connection, lives, until a cluster releases a tenant of its own, and until a tenant with a Device is stopped.
	Held   bool    `json:"held"`
	Shares []Share `json:"shares"`
	// Fault says why the tenant's state page cannot be read, or what its programs are not served with, else empty.
	Fault string `json:"fault,omitempty"`
}

// Share is what a tenant is granted of one GPU. Amounts are bytes; Used, Pending,
// Overhead and Peak come from the tenant's own page and are only its word, but for what the
// agent measured.
type Share struct {
	UUID  string `json:"uuid"`
	Index int    `json:"index"`
	Limit uint64 `json:"limit"`
	// Swap is there for a swap share.
	Swap *Swap `json:"swap,omitempty"`
	// SuspendAfter is how long its programs do not use the GPU before they are taken off it; 0 for never.
	SuspendAfter v1alpha1.Duration `json:"suspendAfter,omitempty"`
	// Observed is what its processes have as the driver tells; nil where it does not.
	Observed *uint64 `json:"observed,omitempty"`
	Used     uint64  `json:"used"`
	Pending  uint64  `json:"pending"`
	Overhead uint64  `json:"overhead"`
	// Measured is the part of Used and Overhead that the pages do not tell and the agent
	// measured by the driver's list.
	Measured uint64          `json:"measured,omitempty"`
	Peak     uint64          `json:"peak"`
	Cores    int             `json:"cores"`
	Policy   v1alpha1.Policy `json:"policy"`
	// MaxCores is where a burst share's use of idle time ends, in percent.
	MaxCores int              `json:"maxCores,omitempty"`
	Weight   int              `json:"weight"`
	Class    v1alpha1.Class   `json:"class"`
	Backend  v1alpha1.Backend `json:"backend"`
	// Mechanism is what of the driver's divides the GPU among shares, with this share's part, for people; empty where
	// Divvy's library does it.
	Mechanism string `json:"mechanism,omitempty"`
	// Whole is true where no other tenant may be on the GPU.
	Whole bool `json:"whole,omitempty"`
	// Instance is the MIG instance on which the share is, nil for none.
	Instance *backend.Instance `json:"instance,omitempty"`
	Process  []Process         `json:"processes,omitempty"`
	// Excess says that it holds more than it may or tells, else empty.
	Excess string `json:"excess,omitempty"`
	// Past says that it is past its limit by overhead alone, else empty.
	Past string `json:"past,omitempty"`
	// Turns is what is known of the turns of a swap share's memory; nil for any other share.
	Turns *Turns `json:"turns,omitempty"`
	// Time is the share's GPU time; nil where nobody divides it.
	Time *Time `json:"time,omitempty"`
	// Signalled counts processes of it that the agent stopped or killed for taking more than the share, since the agent
	// started.
	Signalled uint64 `json:"signalled,omitempty"`
	// ByDescriptor is the part of Used that no process of the tenant holds: file
	// descriptors of exported memory keep it, in whatever process.
	ByDescriptor uint64 `json:"byDescriptor,omitempty"`
	// Refusals are its refused allocations, nil without any.
	Refusals *Refusals `json:"refusals,omitempty"`
}

// Swap is what of a swap share is where. Amounts are bytes.
type Swap struct {
	// Kept is the part of the share's limit that never leaves the GPU, and KeptUsed what of it is used, which is a part of
	// the share's Used too.
	Kept     uint64 `json:"kept"`
	KeptUsed uint64 `json:"keptUsed"`
	// Room is for how much of the rest the GPU has room in the share's turn: less than all of it only with overcommit.
	Room uint64 `json:"room"`
}

// HostMemory is what the agent gives out of the host's memory. Amounts are bytes.
type HostMemory struct {
	// Allowed is how much swapped and suspended shares may have together, and Granted what they have.
	Allowed uint64 `json:"allowed"`
	Granted uint64 `json:"granted"`
}

// Process is one process of a tenant on one GPU.
type Process struct {
	// PID is in the agent's pid namespace, 0 where it is not known.
	PID int `json:"pid"`
	// Client is the process of the tenant's command for which it uses the GPU, in the same pid namespace; 0 for one that does
	// so for itself. It is the tenant's word.
	Client int `json:"client,omitempty"`
	// Used is the tenant's word. It is 0 also where it is not known.
	Used uint64 `json:"used"`
	// Observed is what it has as the driver tells; nil where it does not.
	Observed *uint64 `json:"observed,omitempty"`
}

// Called reports whether a name or id is the tenant's, or its user's name and its name
// with a slash between them.
func (t *Tenant) Called(name string) bool {
	return t.ID == name || t.Name == name || t.User+"/"+t.Name == name
}

// LeftOutText says why a GPU is left out.
func LeftOutText(gpu int, refused map[int]string) string {
	if why := refused[gpu]; why != "" {
		return fmt.Sprintf("GPU %d is left out: the driver answers about it with an error (%s)", gpu, why)
	}
	return fmt.Sprintf("GPU %d is left out: the driver has not answered about it yet", gpu)
}

// Listing is the answer to list.
type Listing struct {
	// Time is when it was made.
	Time time.Time `json:"time"`
	Info Info      `json:"info"`
	GPUs []GPU     `json:"gpus"`
	// LeftOut are the indexes of GPUs that are not served, because the driver has not
	// told of them since the agent started.
	LeftOut []int `json:"leftOut,omitempty"`
	// Refused are the errors with which the driver answered about those of them about which
	// it did, by index.
	Refused map[int]string `json:"refused,omitempty"`
	Tenants []Tenant       `json:"tenants"`
	// SwapMemory is what swapped and suspended shares have of the host, nil where the agent gives them nothing.
	SwapMemory *HostMemory `json:"swapMemory,omitempty"`
	// Devices are those that virtual machines have.
	Devices []DeviceClaim `json:"devices,omitempty"`
	// Waiting are queued requests, oldest first.
	Waiting []Waiting `json:"waiting,omitempty"`
	// Outside are processes on the GPUs that are in no share.
	Outside []Outside `json:"outside,omitempty"`
	// Events are the latest, oldest first.
	Events []Event `json:"events,omitempty"`
	// History says why the history is not written, empty while it is or where the agent keeps none.
	History string `json:"history,omitempty"`
	// MetricsTaken is the address at which the agent should tell metrics and show the web page and another program listens;
	// empty while none does.
	MetricsTaken string `json:"metricsTaken,omitempty"`
}

// Waiting is a queued request.
type Waiting struct {
	Request v1alpha1.ShareRequest `json:"request"`
	User    string                `json:"user"`
	Since   time.Time             `json:"since"`
	// Reason says what it waits for.
	Reason string `json:"reason"`
	// Keeps are the indexes of the GPUs that nobody who came later gets before it, as many
	// as it asks for; none while its user's own limits keep it waiting.
	Keeps []int `json:"keeps,omitempty"`
}

// Outside is a process that uses a GPU without a share.
type Outside struct {
	PID int `json:"pid"`
	// User and Command are whose process it is and the name of its program, empty where
	// the kernel does not tell.
	User    string `json:"user,omitempty"`
	Command string `json:"command,omitempty"`
	UUID    string `json:"uuid"`
	// Used is what the driver says that it holds; nil where it does not tell.
	Used *uint64 `json:"used,omitempty"`
	// Percent of the GPU's time that it had lately, by the driver's figures; nil where the driver does not tell.
	Percent *float64 `json:"percent,omitempty"`
	// Tenant is the one whose process tree it belongs to, where that is known, and Owner that
	// one's user.
	Tenant string `json:"tenant,omitempty"`
	Owner  string `json:"owner,omitempty"`
	// Answer is what was done to it for being without a share, empty if nothing.
	Answer string `json:"answer,omitempty"`
}

// SetParams changes a tenant's shares while it runs; what is nil stays.
type SetParams struct {
	// Tenant is an id, a name of one of the asker's shares, or USER/NAME.
	Tenant string           `json:"tenant"`
	Memory *v1alpha1.Memory `json:"memory,omitempty"`
	Cores  *int             `json:"cores,omitempty"`
	// MaxCores is for policy burst; another policy drops it.
	MaxCores *int             `json:"maxCores,omitempty"`
	Policy   *v1alpha1.Policy `json:"policy,omitempty"`
	Weight   *int             `json:"weight,omitempty"`
	Class    *v1alpha1.Class  `json:"class,omitempty"`
	// BelowUsed allows a limit that is less than what is in use: nothing is
	// taken away, but no allocation succeeds until enough is freed.
	BelowUsed bool `json:"belowUsed,omitempty"`
	// Overcommit allows the memory and the guaranteed cores of all shares on a
	// GPU to exceed it.
	Overcommit bool `json:"overcommit,omitempty"`
}

// Heritage is where an agent that hands over keeps what it has granted.
type Heritage struct {
	// Tenants is the directory of its tenants' directories.
	Tenants string `json:"tenants"`
}

// StopParams ends a tenant: SIGTERM to its processes, SIGKILL after Grace.
type StopParams struct {
	// Tenant is an id, a name of one of the asker's shares, or USER/NAME.
	Tenant string `json:"tenant"`
	// Grace is how long processes may take to end, in nanoseconds.
	Grace time.Duration `json:"grace"`
	// Lasting refuses a tenant that has no [Tenant.Device].
	Lasting bool `json:"lasting,omitempty"`
}
