package racks

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// tryAll places members on nodes in all ways, each share on a GPU of its own.
func tryAll(nodes []alloc.Node, members []gang.Member, taken map[string]bool) bool {
	if len(members) == 0 {
		return true
	}
	p := &members[0].Pod
	r := &p.Claims[0][0]
	for i := range nodes {
		n := &nodes[i]
		if n.CPUUsed+p.CPU > n.CPU || n.MemoryUsed+p.HostMemory > n.Memory {
			continue
		}
		n.CPUUsed, n.MemoryUsed = n.CPUUsed+p.CPU, n.MemoryUsed+p.HostMemory
		done := someGPUs(n, r, r.Count, 0, taken, func() bool { return tryAll(nodes, members[1:], taken) })
		n.CPUUsed, n.MemoryUsed = n.CPUUsed-p.CPU, n.MemoryUsed-p.HostMemory
		if done {
			return true
		}
	}
	return false
}

// someGPUs calls found with each set of so many GPUs that serve taken.
func someGPUs(n *alloc.Node, r *alloc.Request, count, from int, taken map[string]bool, found func() bool) bool {
	if count == 0 {
		return found()
	}
	for i := from; i < len(n.GPUs); i++ {
		g := &n.GPUs[i]
		serves := !r.Whole && g.Granted+r.Memory.Of(g.Capacity) <= g.Capacity && g.Cores+r.Cores <= 100 || r.Whole && g.Tenants == 0
		if !serves || taken[g.UUID] {
			continue
		}
		taken[g.UUID] = true
		done := someGPUs(n, r, count-1, i+1, taken, found)
		delete(taken, g.UUID)
		if done {
			return true
		}
	}
	return false
}

// The exhaustive search by numbers finds what trying all ways finds, on nodes of three GPUs.
func TestFitsIsExhaustive(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 1))
	room, none := 0, 0
	for range 30 {
		c, err := Draw(random, 6, 3, 30+random.IntN(30))
		if err != nil {
			t.Fatal(err)
		}
		for node := range 6 {
			n := c.Inventory.Node(node)
			n.GPUs = slices.Clone(n.GPUs[:3])
			n.CPU = n.CPUUsed + int64(8+random.IntN(40))*1000
			if err := c.Inventory.Put(n); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 {
			_, members := Gang(random, 2+random.IntN(3))
			for i := range members {
				r := &members[i].Pod.Claims[0][0]
				r.Count = min(r.Count, 2)
			}
			got := c.Fits(members)
			var want []int
			for rack := range 3 {
				nodes := []alloc.Node{c.Inventory.Node(2 * rack), c.Inventory.Node(2*rack + 1)}
				if tryAll(nodes, members, map[string]bool{}) {
					want = append(want, rack)
					room++
				} else {
					none++
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("room in racks %v, and trying all ways %v", got, want)
			}
		}
	}
	if room < 200 || none < 200 {
		t.Fatalf("room in %d racks, none in %d", room, none)
	}
}

// A gang is in one rack whenever a rack has room for it, on small clusters.
func TestGangsAreInOneRack(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 3))
	r := Result{Clock: time.Now}
	for range 10 {
		c, err := Draw(random, 24, 6, 60)
		if err != nil {
			t.Fatal(err)
		}
		for range 40 {
			g, members := Gang(random, 8+random.IntN(9))
			if err := r.Try(c, g, members); err != nil {
				t.Fatal(err)
			}
		}
	}
	if r.Room < 150 || r.None < 50 || r.Together*100 < r.Room*99 {
		t.Errorf("%d of %d gangs are in one rack; %d had no rack", r.Together, r.Room, r.None)
	}
}
