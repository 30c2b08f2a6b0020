package alloc

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// history plays arrivals and departures and returns what was decided. Between them, meddle may do what must leave no trace.
func history(t *testing.T, policy string, meddle func(*Inventory, int)) (decided []string) {
	t.Helper()
	random := rand.New(rand.NewPCG(4, 2))
	inventory := newInventory(t, randomNodes(random, 25), policy)
	var held []Assignment
	for i := range 400 {
		meddle(inventory, i)
		if len(held) > 0 && random.IntN(3) == 0 {
			j := random.IntN(len(held))
			if !inventory.Release(held[j]) {
				t.Fatal("what was reserved is not held")
			}
			held = slices.Delete(held, j, j+1)
			continue
		}
		r := randomRequest(random)
		if r.Validate() != nil {
			continue
		}
		inventory.Observe(r)
		meddle(inventory, i)
		a, err := Search(inventory, r)
		decided = append(decided, fmt.Sprint(i, a.Name, a.Shares, err))
		if err != nil {
			continue
		}
		if err := inventory.Reserve(a); err != nil {
			t.Fatal(err)
		}
		held = append(held, a)
	}
	return decided
}

// Whatever is searched for, and whatever is reserved and taken back, later decisions are as they would have been.
func TestTrialsLeaveNoTrace(t *testing.T) {
	for _, policy := range PolicyNames() {
		want := history(t, policy, func(*Inventory, int) {})
		random := rand.New(rand.NewPCG(8, 8))
		got := history(t, policy, func(inventory *Inventory, _ int) {
			var trial []Assignment
			for range random.IntN(12) {
				r := randomRequest(random)
				_, _ = Search(inventory, r)
				choices, err := inventory.Choices(r, nil)
				if err != nil {
					continue
				}
				for range 1 + random.IntN(3) {
					a, ok := choices.Next()
					if ok && random.IntN(2) == 0 {
						if err := inventory.Reserve(a); err != nil {
							t.Fatal(err)
						}
						trial = append(trial, a)
					}
				}
			}
			random.Shuffle(len(trial), func(i, j int) { trial[i], trial[j] = trial[j], trial[i] })
			for _, a := range trial {
				if !inventory.Unreserve(a) {
					t.Fatal("what was reserved is not held")
				}
			}
		})
		if !slices.Equal(want, got) {
			i := 0
			for want[i] == got[i] {
				i++
			}
			t.Errorf("%s: decision %d was %s, and after trials it is %s", policy, i, want[i], got[i])
		}
	}
}

// Choices are all nodes of the set on which a request fits, by their keys, and the first is that of Search.
func TestChoicesAreInOrder(t *testing.T) {
	for _, policy := range []string{DefaultPolicy, "bestfit", "topology", "fgd"} {
		random := rand.New(rand.NewPCG(6, 6))
		inventory := newInventory(t, randomNodes(random, 60), policy)
		for i := range 300 {
			r := randomRequest(random)
			if r.Validate() != nil {
				continue
			}
			inventory.Observe(r)
			var among *NodeSet
			if i%3 > 0 {
				among = &NodeSet{}
				for range []int{0, 4, 60}[i%3] {
					among.Add(random.IntN(60))
				}
			}
			choices, err := inventory.Choices(r, among)
			if err != nil {
				t.Fatal(err)
			}
			want := orderOf(inventory, r, among)
			var got []int
			for a, ok := choices.Next(); ok; a, ok = choices.Next() {
				got = append(got, a.Node)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%s: %+v among %v: nodes %v, want %v", policy, r, among, got, want)
			}
			a, err := Search(inventory, r)
			if among == nil && (err == nil) != (len(want) > 0) || err == nil && among == nil && a.Node != want[0] {
				t.Fatalf("%s: Search gives %d, %v; choices are %v", policy, a.Node, err, want)
			}
			if err != nil {
				continue
			}
			if choices, err = inventory.Choices(r, nil); err != nil {
				t.Fatal(err)
			}
			if err := inventory.Reserve(a); err != nil {
				t.Fatal(err)
			}
			if _, ok := choices.Next(); ok {
				t.Fatal("choices go on after a change")
			}
		}
	}
}

// orderOf computes the key of every node afresh.
func orderOf(inventory *Inventory, r Request, among *NodeSet) (nodes []int) {
	c := inventory.newShape(r)
	var keys []uint64
	for node := range inventory.nodes {
		if among != nil && !among.Has(node) {
			continue
		}
		key := uint64(noKey)
		if inventory.indexed(&r) {
			key, _ = inventory.evaluate(c, node)
		} else if a, cause := inventory.arrange(c, node); cause == CauseNone {
			key = inventory.keyOf(c, node, &a)
		}
		if key != noKey {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		nodes = append(nodes, nodeOf(key))
	}
	return nodes
}

// bare is a copy of a node's description.
func bare(n Node) Node {
	n.GPUs, n.NICs = append([]GPU(nil), n.GPUs...), append([]NIC(nil), n.NICs...)
	return n
}

// Nodes come, go and change while shares come and go, and everything in use is always what an inventory says that is made
// of the same nodes and adopts the same shares.
func TestLivingInventoryEqualsRebuild(t *testing.T) {
	for seed := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 12))
		descriptions := map[string]Node{}
		inventory := newInventory(t, nil, DefaultPolicy)
		all := randomNodes(random, 30)
		var held []Assignment
		for step := range 500 {
			n := bare(all[random.IntN(len(all))])
			_, there := inventory.Position(n.Name)
			switch random.IntN(6) {
			case 0:
				if len(n.GPUs) > 1 && random.IntN(2) == 0 { // a GPU fails, vanishes, or is somebody else's in part
					switch i := random.IntN(len(n.GPUs)); random.IntN(3) {
					case 0:
						n.GPUs[i].Fault = "it fell off the bus"
					case 1:
						n.GPUs, n.Near, n.NICs = slices.Delete(n.GPUs, i, i+1), nil, nil
					case 2:
						n.GPUs[i].Granted, n.GPUs[i].Tenants = 7, 1
					}
				}
				descriptions[n.Name] = bare(n)
				if err := inventory.Put(n); err != nil {
					t.Fatal(err)
				}
			case 1:
				if there {
					delete(descriptions, n.Name)
					if err := inventory.Remove(n.Name); err != nil {
						t.Fatal(err)
					}
				}
			case 2:
				if d := descriptions[n.Name]; there {
					d.CPU, d.CPUUsed, d.Memory, d.MemoryUsed = d.CPU+1000, 500, d.Memory+1<<20, 1<<20
					descriptions[n.Name] = d
					if err := inventory.SetHost(n.Name, d.CPU, d.CPUUsed, d.Memory, d.MemoryUsed); err != nil {
						t.Fatal(err)
					}
				}
			case 3:
				if len(held) > 0 {
					i := random.IntN(len(held))
					if !inventory.Release(held[i]) {
						t.Fatal("what was reserved is not held")
					}
					held = slices.Delete(held, i, i+1)
				}
			default:
				r := randomRequest(random)
				if r.Validate() != nil {
					continue
				}
				inventory.Observe(r)
				a, err := Search(inventory, r)
				if fits := fitsSomewhere(inventory, r); fits != (err == nil) {
					t.Fatalf("seed %d, step %d: %+v fits somewhere: %v, but the answer is %v", seed, step, r, fits, err)
				}
				if err != nil {
					continue
				}
				if err := inventory.Reserve(a); err != nil {
					t.Fatal(err)
				}
				held = append(held, a)
			}
			compareWithRebuild(t, inventory, descriptions, held)
		}
	}
}

func compareWithRebuild(t *testing.T, inventory *Inventory, descriptions map[string]Node, held []Assignment) {
	t.Helper()
	var nodes []Node
	for _, d := range descriptions {
		nodes = append(nodes, bare(d))
	}
	anew := newInventory(t, nodes, DefaultPolicy)
	for _, a := range held {
		anew.Adopt(a)
	}
	for name := range descriptions {
		i, ok := inventory.Position(name)
		j, _ := anew.Position(name)
		if !ok {
			t.Fatalf("node %s is missing", name)
		}
		one, two := bare(inventory.Node(i)), bare(anew.Node(j))
		for g := range one.GPUs { // which of two shares came first decides what is said of a contradiction
			one.GPUs[g].Fence, two.GPUs[g].Fence = fmt.Sprint(one.GPUs[g].Fence != ""), fmt.Sprint(two.GPUs[g].Fence != "")
		}
		if !reflect.DeepEqual(one, two) {
			t.Fatalf("node %s is\n%+v\nand made anew\n%+v", name, one, two)
		}
		r, s := inventory.entries[i], anew.entries[j]
		r.state.kind, s.state.kind = 0, 0
		if r.state != s.state {
			t.Fatalf("node %s has state\n%+v\nand made anew\n%+v", name, r.state, s.state)
		}
	}
	if inventory.present != len(descriptions) {
		t.Fatalf("%d nodes, want %d", inventory.present, len(descriptions))
	}
}

// However many different requests come, what the inventory keeps of them is bounded.
func TestShapesAreBounded(t *testing.T) {
	nodes := make([]Node, 5000)
	for i := range nodes {
		nodes[i] = Node{Name: fmt.Sprint(i), CPU: 128_000, Memory: 1 << 40, GPUs: make([]GPU, 8)}
		for j := range nodes[i].GPUs {
			nodes[i].GPUs[j] = GPU{UUID: fmt.Sprint(i, "/", j), Index: j, Model: "m", Capacity: 80 << 30}
		}
	}
	inventory := newInventory(t, nodes, DefaultPolicy)
	search := func(from, to int) {
		for i := from; i < to; i++ {
			r := Request{Count: 1, Memory: v1alpha1.Bytes(uint64(1<<30 + i)), CPU: 1000}
			inventory.Observe(r)
			if _, err := Search(inventory, r); err != nil {
				t.Fatal(err)
			}
		}
	}
	search(0, 100)
	before := heap()
	search(100, 3000)
	if grown := heap() - before; grown > shapeBytes+16<<20 {
		t.Errorf("2,900 more requests take %d MiB", grown>>20)
	}
	if n := len(inventory.shapes.by); n > mostShapes+shapeBytes/(100<<10) {
		t.Errorf("%d shapes are kept", n)
	}
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
