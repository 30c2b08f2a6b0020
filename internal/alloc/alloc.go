// Package alloc chooses GPUs for a request. It is pure: an inventory and a
// request go in, an assignment or a refusal comes out, and nothing else is
// looked at. All arithmetic that decides is on integers, and equal inputs give
// equal answers.
//
// [Search] is the one way to a decision, for one host as for a cluster. An
// [Inventory] keeps, beside its nodes, what makes the next decision quick; its
// methods are for one goroutine at a time. A decision over 1,200 nodes has a
// budget of 50 microseconds, so nothing in its way looks at every node.
package alloc

// MaxGPUs is how many GPUs a node may have: no machine on sale has more than
// 16 behind one host.
const MaxGPUs = 16

// GPU is what the allocator knows of a GPU. Amounts are bytes and percent.
type GPU struct {
	UUID  string
	Index int
	// Model is compared with the models that a request allows or avoids.
	Model string
	// Capacity is what the GPU has for tenants.
	Capacity uint64
	// Granted is the sum of the limits of its shares.
	Granted uint64
	// Cores is the sum of their guaranteed cores, above 100 only where shares
	// are overcommitted.
	Cores int
	// ContextBytes is what one process takes before it allocates anything: a
	// smaller limit is of no use to anybody.
	ContextBytes uint64
	// Tenants is how many shares the GPU has: a whole GPU is given only when
	// there are none.
	Tenants int
	// Fault says why nothing may be placed here; empty for a healthy GPU.
	Fault string
	// Profiles are the MIG profiles of a GPU in MIG mode, which serves nothing else.
	Profiles []Profile
	// Slots has a bit for each MIG memory slot in use.
	Slots uint32
}

// Profile is a MIG profile that a GPU can be cut into.
type Profile struct {
	// Name is the driver's, such as "1g.10gb".
	Name string
	// Size is how many memory slots an instance takes.
	Size int
	// Starts are the slots, 0 to 31, at which an instance may begin.
	Starts []int
}

// FreeMemory is what can still be granted without overcommit.
func (g *GPU) FreeMemory() uint64 {
	return g.Capacity - min(g.Granted, g.Capacity)
}

// FreeCores is how much GPU time can still be guaranteed, in percent.
func (g *GPU) FreeCores() int {
	return max(0, 100-g.Cores)
}

// Relation says how near two devices of a node are; nearer is greater.
type Relation uint8

// The relations, from unknown to near.
const (
	RelationNone     Relation = iota
	RelationSystem            // the way leads through the link between sockets
	RelationNUMA              // one NUMA node
	RelationHost              // one PCIe host bridge
	RelationSwitches          // several PCIe switches
	RelationSwitch            // one PCIe switch
	RelationNVLink            // NVLink
)

// NIC is a network adapter that can be given together with a GPU.
type NIC struct {
	Name string
	// Near has the relation to each GPU of the node, in their order.
	Near []Relation
	// Granted is how many tenants hold it.
	Granted int
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

// Grant is one share of an assignment.
type Grant struct {
	UUID string
	// GPU is the position of the GPU in its node.
	GPU int
	// Limit is in bytes, Cores in percent.
	Limit uint64
	Cores int
	// Profile and Start place a MIG instance.
	Profile string
	Start   int
	// NIC is the position of the adapter given with the GPU, -1 for none.
	NIC int
}

// Assignment is a place for a request: one grant for each share asked for, in
// the order of preference. Nothing is taken until [Inventory.Reserve].
type Assignment struct {
	// Node is the position of the node in the inventory.
	Node   int
	Name   string
	Grants []Grant
	CPU    int64
	Memory uint64
	// Why explains the choice.
	Why Choice

	whole, overcommit, overcommitCores bool
	group                              group
}
