// Package racks draws clusters in racks that are partly in use, and gangs for them, and finds by exhaustive search which
// racks have room for a gang. It shares no code with the allocator's searches.
package racks

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// Label is that of the nodes' racks.
const Label = "example.com/rack"

// GPUsPerNode is how many GPUs each node has.
const GPUsPerNode = 8

const (
	gib = 1 << 30
	// capacity is the memory of a GPU.
	capacity = 80 * gib
)

// Cluster is nodes in racks.
type Cluster struct {
	Inventory *alloc.Inventory
	// Of has the rack of each node, by its position.
	Of    []int
	Racks int
}

// Label implements gang.Nodes.
func (c *Cluster) Label(position int, label string) (string, bool) {
	if label != Label || position >= len(c.Of) {
		return "", false
	}
	return fmt.Sprintf("r%02d", c.Of[position]), true
}

// Draw makes a cluster in which tenants have so many percent of the GPUs, as the mean of memory and time. Tenants came until it was full
// and left at random, so that what is free lies scattered.
func Draw(random *rand.Rand, nodes, racks, percent int) (*Cluster, error) {
	c := &Cluster{Racks: racks}
	var all []alloc.Node
	for i := range nodes {
		n := alloc.Node{Name: fmt.Sprintf("node-%04d", i), CPU: 128_000, Memory: 1024 * gib}
		for j := range GPUsPerNode {
			n.GPUs = append(n.GPUs, alloc.GPU{UUID: fmt.Sprintf("%s/%d", n.Name, j), Index: j, Model: "H100", Capacity: capacity})
		}
		all = append(all, n)
		c.Of = append(c.Of, i*racks/nodes)
	}
	if err := occupy(random, all, percent); err != nil {
		return nil, err
	}
	inventory, err := inventoryOf(all, alloc.DefaultPolicy)
	if err != nil {
		return nil, err
	}
	for range 500 {
		inventory.Observe(tenant(random)) // what the policy expects to come
	}
	c.Inventory = inventory
	return c, nil
}

func inventoryOf(nodes []alloc.Node, policy string) (*alloc.Inventory, error) {
	p, err := alloc.PolicyNamed(policy)
	if err != nil {
		return nil, err
	}
	return alloc.NewInventory(nodes, p)
}

// occupy counts in nodes what tenants use. They were placed by best fit, which is quick.
func occupy(random *rand.Rand, nodes []alloc.Node, percent int) error {
	inventory, err := inventoryOf(slices.Clone(nodes), "bestfit")
	if err != nil {
		return err
	}
	var held []alloc.Assignment
	given, refused := 0, 0
	use := func(a *alloc.Assignment) (sum int) {
		for _, s := range a.Shares {
			sum += (int(s.Limit/(capacity/1000)) + s.Cores*10) / 2
		}
		return sum
	}
	for refused < 50 {
		a, err := alloc.Search(inventory, tenant(random))
		if err != nil {
			refused++
			continue
		}
		if err := inventory.Reserve(a); err != nil {
			return fmt.Errorf("fill the cluster: %w", err)
		}
		held, refused = append(held, a), 0
		given += use(&a)
	}
	for most := len(nodes) * GPUsPerNode * 1000; len(held) > 0 && given*100 > most*percent; {
		i := random.IntN(len(held))
		inventory.Unreserve(held[i])
		given -= use(&held[i])
		held[i] = held[len(held)-1]
		held = held[:len(held)-1]
	}
	for i := range nodes {
		nodes[i] = inventory.Node(i)
	}
	return nil
}

// tenant asks for a part of a GPU or for 1, 2, 4 or 8 whole ones.
func tenant(random *rand.Rand) alloc.Request {
	r := alloc.Request{Count: 1, CPU: int64(1+random.IntN(8)) * 1000, HostMemory: uint64(1+random.IntN(32)) * gib}
	if random.IntN(10) < 7 {
		r.Memory, r.Cores = v1alpha1.Bytes(uint64(1+random.IntN(10))*4*gib), 5*random.IntN(11)
		return r
	}
	r.Count, r.Whole = 1<<random.IntN(4), true
	r.CPU *= int64(r.Count)
	return r
}

// Gang draws a gang of so many members. In half of the gangs all members ask the same; the others have members of two
// or three kinds, such as a leader and workers.
func Gang(random *rand.Rand, size int) (gang.Gang, []gang.Member) {
	g := gang.Gang{
		Namespace: "team", Name: "train", Size: size, Minimum: size,
		Topology: []gang.Level{{Label: Label, Required: random.IntN(2) == 0}},
	}
	kinds := 1
	if random.IntN(2) == 0 {
		kinds = 2 + random.IntN(2)
	}
	var pods []alloc.Pod
	for range kinds {
		pods = append(pods, pod(random))
	}
	var members []gang.Member
	for i := range size {
		kind := random.IntN(kinds)
		if i < kinds {
			kind = i
		}
		members = append(members, gang.Member{Key: fmt.Sprintf("team/train-%02d", i), Pod: pods[kind]})
	}
	return g, members
}

// pod is a member's: a part of a GPU, or whole ones.
func pod(random *rand.Rand) alloc.Pod {
	r := tenant(random)
	p := alloc.Pod{CPU: r.CPU, HostMemory: r.HostMemory}
	r.CPU, r.HostMemory = 0, 0
	if r.Whole && r.Count == 8 && random.IntN(2) == 0 {
		r.Count = 1
	}
	if !r.Whole && random.IntN(4) == 0 {
		r.Count = 2
	}
	p.Claims = [][]alloc.Request{{r}}
	return p
}

// Together reports whether all members of a plan are in one rack.
func (c *Cluster) Together(plan *gang.Plan) bool {
	for _, p := range plan.Placements {
		if c.Of[p.Assignment.Node] != c.Of[plan.Placements[0].Assignment.Node] {
			return false
		}
	}
	return len(plan.Placements) > 0
}

// Large draws a gang of so many members of one to four kinds; of one in eight, all members ask for something else. Half of
// the gangs require one rack.
func Large(random *rand.Rand, size int) (gang.Gang, []gang.Member) {
	g := gang.Gang{Namespace: "team", Name: "train", Size: size, Minimum: size}
	if random.IntN(2) == 0 {
		g.Topology = []gang.Level{{Label: Label, Required: true}}
	}
	kinds := 1 + random.IntN(4)
	if random.IntN(8) == 0 {
		kinds = size
	}
	var pods []alloc.Pod
	for range kinds {
		p := pod(random)
		if random.IntN(4) == 0 {
			p.Claims = append(p.Claims, pod(random).Claims...)
		}
		pods = append(pods, p)
	}
	var members []gang.Member
	for i := range size {
		members = append(members, gang.Member{Key: fmt.Sprintf("team/train-%04d", i), Pod: pods[i%kinds]})
	}
	return g, members
}

// Single draws a pod of no gang.
func Single(random *rand.Rand) alloc.Pod { return pod(random) }
