package alloc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// socketed is a node whose GPUs and cards are at random places: switches within host bridges within sockets.
func socketed(random *rand.Rand) Node {
	n := Node{Name: "n", CPU: 1000, Memory: gib}
	type location struct{ socket, bridge, port int }
	at := func() location {
		p := location{socket: random.IntN(2)}
		p.bridge = p.socket*2 + random.IntN(2)
		p.port = p.bridge*2 + random.IntN(2)
		return p
	}
	var gpus []location
	for i := range 1 + random.IntN(6) {
		gpus = append(gpus, at())
		n.GPUs = append(n.GPUs, GPU{UUID: fmt.Sprint("g", i), Index: i, Capacity: 4 * gib, Granted: uint64(random.IntN(3)) * gib, Tenants: 0})
	}
	for i := range random.IntN(6) {
		p := at()
		nic := NIC{Name: fmt.Sprint("nic", i), Slots: 1 + random.IntN(2)}
		if random.IntN(8) == 0 {
			nic.Fault = "it is down"
		}
		for _, g := range gpus {
			relation := RelationSystem
			switch {
			case g.port == p.port:
				relation = RelationSwitch - Relation(random.IntN(2))
			case g.bridge == p.bridge:
				relation = RelationHost
			case g.socket == p.socket:
				relation = RelationNUMA
			}
			nic.Near = append(nic.Near, relation)
		}
		n.NICs = append(n.NICs, nic)
	}
	return n
}

// fewestFar tries every choice of GPUs and adapters for a request, and returns how few are beyond one switch, and of these beyond one bridge;
// ok is false where nothing fits.
func fewestFar(n *Node, r *Request) (beyond [2]int, ok bool) {
	free := make([]int, len(n.NICs))
	for i := range free {
		free[i] = n.NICs[i].free()
	}
	var try func(gpu, left int, now [2]int)
	try = func(gpu, left int, now [2]int) {
		if left == 0 {
			if !ok || now[0] < beyond[0] || now[0] == beyond[0] && now[1] < beyond[1] {
				beyond, ok = now, true
			}
			return
		}
		for ; gpu+left <= len(n.GPUs); gpu++ {
			if n.GPUs[gpu].FreeMemory() < r.Memory.Of(n.GPUs[gpu].Capacity) {
				continue
			}
			for i := range free {
				if near := n.NICs[i].Near[gpu]; free[i] > 0 && near >= r.Pair {
					next := now
					if near < RelationSwitches {
						next[0]++
					}
					if near < RelationHost {
						next[1]++
					}
					free[i]--
					try(gpu+1, left-1, next)
					free[i]++
				}
			}
		}
	}
	try(0, r.Count, [2]int{})
	return beyond, ok
}

// Whenever any choice has all pairs within reach the allocator finds one, and none has more of them on one switch, or of the
// others below one bridge.
func TestNearestPairs(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	placed, refused := 0, 0
	for range 4000 {
		n := socketed(random)
		r := Request{Count: 1 + random.IntN(len(n.GPUs)), Memory: v1alpha1.Bytes(uint64(1+random.IntN(4)) * gib), Pair: reaches[random.IntN(3)]}
		want, fits := fewestFar(&n, &r)
		free := map[string]int{}
		for i := range n.NICs {
			free[n.NICs[i].Name] = n.NICs[i].free()
		}
		inventory := newInventory(t, []Node{n}, "bestfit")
		a, err := Search(inventory, r)
		if (err == nil) != fits {
			t.Fatalf("%+v on %+v: %v, fits %v", r, n, err, fits)
		}
		if err != nil {
			refused++
			continue
		}
		placed++
		got := [2]int{}
		for _, s := range a.Shares {
			near := inventory.nodes[0].nic(s.NIC).Near[s.GPU]
			if free[s.NIC]--; free[s.NIC] < 0 || near < r.Pair {
				t.Fatalf("%+v on %+v: %+v", r, n, a)
			}
			if near < RelationSwitches {
				got[0]++
			}
			if near < RelationHost {
				got[1]++
			}
		}
		if got != want {
			t.Fatalf("%+v on %+v: %v are farther, and %v could be", r, n, got, want)
		}
		if err := inventory.Reserve(a); err != nil {
			t.Fatal(err)
		}
		if err := inventory.Reserve(a); err == nil && r.Memory.Of(4*gib) > 2*gib {
			t.Fatalf("%+v was reserved twice", a)
		}
	}
	if placed < 500 || refused < 500 {
		t.Errorf("%d placed, %d refused", placed, refused)
	}
}

// Pairs spread over the cards of their switch.
func TestPairsHaveCardsOfTheirOwn(t *testing.T) {
	n := eight()
	for i := range n.NICs {
		second := n.NICs[i]
		second.Name += "b"
		n.NICs = append(n.NICs, second)
	}
	for i := range n.NICs {
		n.NICs[i].Slots = 16
	}
	inventory := newInventory(t, []Node{n}, "bestfit")
	a := search(t, inventory, Request{Count: 8, Whole: true, Pair: RelationSwitches})
	seen := map[string]bool{}
	for _, s := range a.Shares {
		if seen[s.NIC] {
			t.Errorf("adapter %s has two of %+v", s.NIC, a.Shares)
		}
		seen[s.NIC] = true
	}
}

func TestRefusedPairs(t *testing.T) {
	bare := eight()
	bare.NICs = nil
	busy := eight()
	for i := range busy.NICs {
		busy.NICs[i].Granted = 1
	}
	for want, nodes := range map[string][]Node{
		"no RDMA card near enough to a GPU":      {bare},
		"no free RDMA card near enough to a GPU": {busy},
	} {
		for _, more := range []bool{false, true} {
			if more {
				other := nodes[0]
				other.Name = "other"
				nodes = append(nodes, other)
			}
			_, err := Search(newInventory(t, nodes, "bestfit"), Request{Count: 1, Whole: true, Pair: RelationSwitches})
			var refusal *Refusal
			if !errors.As(err, &refusal) || !strings.Contains(err.Error(), want) || (refusal.Reason == ReasonNever) != (nodes[0].NICs == nil) {
				t.Errorf("%d nodes: %v (%+v), want %s", len(nodes), err, refusal, want)
			}
		}
	}
	_, err := Search(newInventory(t, []Node{eight()}, "bestfit"), Request{Count: 5, Whole: true, Pair: RelationSwitches})
	if err == nil || !strings.Contains(err.Error(), "no free RDMA card") {
		t.Errorf("five pairs of four cards: %v", err)
	}
}

// A card that vanished takes nothing from what its holder has of a GPU, and is counted again when it is back.
func TestVanishedCard(t *testing.T) {
	inventory := newInventory(t, []Node{eight()}, "bestfit")
	a := Assignment{Name: "eight", Shares: []Share{{UUID: "g0", Limit: gib}, {NIC: "mlx0"}, {NIC: "mlx9"}}}
	if inventory.Adopt(a) {
		t.Error("a GPU is fenced")
	}
	without := eight()
	without.NICs = without.NICs[1:]
	for i, nodes := range []Node{eight(), without, eight()} {
		if err := inventory.Put(nodes); err != nil {
			t.Fatal(err)
		}
		n := inventory.Node(0)
		if nic := n.nic("mlx0"); n.GPUs[0].Granted != gib || nic != nil && nic.Granted != 1 || (nic == nil) != (i == 1) {
			t.Errorf("%d: GPU %+v, card %+v", i, n.GPUs[0], nic)
		}
	}
	if !inventory.Release(a) {
		t.Error("it was not held")
	}
	if n := inventory.Node(0); n.GPUs[0].Granted != 0 || n.nic("mlx0").Granted != 0 {
		t.Errorf("after the release: %+v, %+v", n.GPUs[0], n.NICs)
	}
}
