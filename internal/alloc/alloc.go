// Package alloc chooses GPUs for a request. It is pure: an inventory and a
// request go in, and an assignment or a refusal comes out. Nothing else has an
// influence. All arithmetic that decides is on integers, so equal inputs give
// equal answers.
//
// [Search] makes every decision, for one host and for a cluster; [Inventory.Choices]
// goes on to the next best node. An [Inventory]
// keeps nodes, and indexes that make the next decision quick; only one goroutine
// at a time may call its methods. A decision over 1,200 nodes has a budget of 50
// microseconds, so most decisions must not look at every node.
//
// A decision depends on the nodes, on what was reserved, and on what [Inventory.Observe] and [Inventory.Release] told.
// It depends on no search, and on nothing that was taken back: whoever plans may try as much as they want.
package alloc

import "github.com/divvy-gpu/divvy/internal/alloc/layouts"

// MaxGPUs is how many GPUs a node may have. No machine on sale has more than 16
// GPUs in one host.
const MaxGPUs = 16

// GPU is what the allocator knows about a GPU. Amounts are bytes and percent.
type GPU struct {
	UUID  string
	Index int
	// Name is what refusals call it, such as that of a MIG instance that is treated as a GPU. Left out it is "GPU" with its
	// index.
	Name string
	// Model is compared with the models that a request allows or avoids.
	Model string
	// Capacity is the memory that tenants can have.
	Capacity uint64
	// Granted is the sum of the limits of its shares, and of what swap shares keep.
	Granted uint64
	// SwapMemory is the memory of the host that swap shares of a cluster's GPU can have, and MostSwapMemory what one of them can
	// have. SwapGranted is the sum of what they have.
	SwapMemory, MostSwapMemory, SwapGranted uint64
	// Turn is the room in which swap shares take turns that others granted, see [GPU.TurnRoom]. Swapped is the sum of what
	// all swap shares do not keep.
	Turn, Swapped uint64
	// Cores is the sum of their guaranteed cores. It exceeds 100 only where
	// shares are overcommitted.
	Cores int
	// ContextBytes is what one process takes before it allocates anything. A
	// limit that is not greater is refused, as nothing could be allocated.
	ContextBytes uint64
	// Tenants is how many shares the GPU has. A request for a whole GPU needs
	// one that has none.
	Tenants int
	// Form is how its tenants share it, empty for a GPU without tenants. All of them share
	// it in the same way.
	Form string
	// User is the only one whose shares may join those that are there, empty where everybody's may.
	User string
	// Clients is how many programs are counted that share the GPU through a server of the driver's, and MostClients
	// how many that server takes; 0 is no limit.
	Clients, MostClients int
	// Fault says why the GPU takes no shares. It is empty for a healthy GPU.
	Fault string
	// Fence says why a GPU takes no more shares until what contradicts itself there has ended, see [Inventory.Adopt].
	Fence string
	// Capability is how much the GPU can do, as the driver tells.
	Capability Capability
	// Class is a number that the caller gives to all GPUs with the same attributes, see [Classes].
	Class uint16
	// DefaultCores is what a share takes that asks for no cores, in percent.
	DefaultCores int
	Location     Location
	// Slots is how many tenants the GPU has room for; 0 is no limit.
	Slots int
	// Profiles are the MIG profiles of a GPU in MIG mode, which serves nothing else.
	Profiles []Profile
	// Slices has a bit for each MIG memory slice in use, also by what is no placement of Profiles.
	Slices uint32
	// Instances are the instances that are there, of those that Profiles allow.
	Instances layouts.Layout

	// aside keeps it from all requests, see [Inventory.SetAside].
	aside bool
	// turns are those of the swap shares that are held of it, in order.
	turns []uint64
}

// Profile is a MIG profile that a GPU can be cut into.
type Profile = layouts.Profile

// Capability orders GPUs: by compute capability, then by the product of SMs and clock, then by memory.
type Capability struct {
	// Compute is the major version times 100 and the minor version, so that 9.0 is 900.
	Compute int
	// SMs is their number, and Clock their highest clock in MHz.
	SMs, Clock int
}

// FreeMemory is what can still be granted without overcommit.
func (g *GPU) FreeMemory() uint64 {
	return g.Capacity - min(g.Granted+g.TurnRoom(), g.Capacity)
}

// FreeCores is how much GPU time can still be guaranteed, in percent.
func (g *GPU) FreeCores() int {
	return max(0, 100-g.Cores)
}

// Relation says how near two devices of a node are. A greater one is nearer.
type Relation uint8

// The relations, from unknown to near.
const (
	RelationNone     Relation = iota
	RelationSystem            // across the link between sockets
	RelationNUMA              // one NUMA node
	RelationHost              // one PCIe host bridge
	RelationSwitches          // several PCIe switches
	RelationSwitch            // one PCIe switch
	RelationNVLink            // NVLink
)

// NIC is a network adapter that can be given together with a GPU.
type NIC struct {
	// Name tells it from the others of its node.
	Name string
	// Near has the relation to each GPU of the node, in their order.
	Near []Relation
	// Slots is how many tenants it has room for, 0 for one; Granted is how many hold it.
	Slots, Granted int
	// Fault says why it takes no tenants. It is empty for a healthy one.
	Fault string
}

// free is how many more tenants it takes.
func (n *NIC) free() int {
	if n.Fault != "" {
		return 0
	}
	return max(1, n.Slots) - n.Granted
}

// Node is a machine.
type Node struct {
	Name string
	// CPU is in thousandths of a processor, Memory in bytes. Used is what
	// tenants hold of them.
	CPU, CPUUsed       int64
	Memory, MemoryUsed uint64
	GPUs               []GPU
	// Near has the relation between every two GPUs; empty when not known.
	Near [][]Relation
	NICs []NIC
}

// Share is what an assignment gives on one GPU.
type Share struct {
	UUID string
	// GPU is the position of the GPU in its node.
	GPU int
	// Limit is in bytes, Cores in percent.
	Limit uint64
	Cores int
	// SwapMemory is the limit of a swap share of a cluster, of which Limit is what never leaves the GPU; 0 for any other share.
	SwapMemory uint64
	// Kept is what a swap share keeps of its Limit, and Turn for how much of the rest there is room; 0 for other shares.
	Kept, Turn uint64
	// Profile and Start place a MIG instance.
	Profile string
	Start   int
	// NIC is the name of the adapter that comes with the GPU, "" for none. A share without a GPU, which has no UUID, is of an
	// adapter alone.
	NIC string
	// Away tells that the share is suspended: it has its SwapMemory of the host, nothing of the GPU, and is no tenant there.
	Away bool
	// Whole shares have their GPU alone. The other two are those of the request.
	Whole, Overcommit, OvercommitCores bool
	// Claim is the position of the pod's claim, and Alternative that of the request which the claim got, see [Pod].
	Claim, Alternative int
}

// Assignment says where a request goes: it has one Share for each that the
// request asks for. The inventory changes only with [Inventory.Reserve].
type Assignment struct {
	// Node is the position of the node in the inventory.
	Node   int
	Name   string
	Shares []Share
	CPU    int64
	Memory uint64

	group group
}
