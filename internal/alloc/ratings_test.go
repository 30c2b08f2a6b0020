package alloc

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// asked are the pods that a ratings test rates: single requests and pods of several claims, some with preferences.
func asked(random *rand.Rand, n int) (pods []Pod) {
	for len(pods) < n {
		p := randomPod(random)
		if random.IntN(2) == 0 {
			r := randomRequest(random)
			if r.Count == 0 {
				continue
			}
			p = Pod{CPU: r.CPU, HostMemory: r.HostMemory}
			r.CPU, r.HostMemory = 0, 0
			p.Claims = [][]Request{{r}}
		}
		if len(p.Claims) > 0 && p.Validate() == nil {
			pods = append(pods, p)
		}
	}
	return pods
}

// checkRatings compares ratings with what choices among each node alone say, and the order of nodes with that of all choices.
func checkRatings(t *testing.T, r *Ratings) {
	t.Helper()
	inv := r.inv
	type rated struct {
		key  uint64
		node int
	}
	var got []rated
	for node := range inv.Len() {
		key, fits := r.Key(node)
		a, placed := r.Assignment(node)
		if fits != placed || fits != (r.Cause(node) == CauseNone) {
			t.Fatalf("node %d fits %v, is placed %v, and the cause is %v", node, fits, placed, r.Cause(node))
		}
		among := &NodeSet{}
		among.Add(node)
		choices, err := inv.PodChoices(&r.pod, among)
		if err != nil {
			t.Fatal(err)
		}
		want, ok := choices.Next()
		if ok != fits || ok && !reflect.DeepEqual(a, want) {
			t.Fatalf("%+v on node %d: fits %v with %+v, want %v with %+v", r.pod, node, fits, a, ok, want)
		}
		if fits {
			got = append(got, rated{key, node})
		}
	}
	slices.SortFunc(got, func(a, b rated) int {
		if a.key < b.key {
			return -1
		}
		return 1
	})
	choices, err := inv.PodChoices(&r.pod, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if a, ok := choices.Next(); !ok || a.Node != got[i].node {
			t.Fatalf("place %d is node %d, want %d, %v", i, got[i].node, a.Node, ok)
		}
	}
	if a, ok := choices.Next(); ok {
		t.Fatalf("node %d is not rated", a.Node)
	}
}

// Ratings that follow an inventory say the same as the search, whatever happens to the inventory.
func TestRatingsFollow(t *testing.T) {
	for _, policy := range []string{DefaultPolicy, "bestfit", "topology", "random", "clustering"} {
		random := rand.New(rand.NewPCG(7, uint64(len(policy))))
		nodes := randomNodes(random, 14)
		spare := randomNodes(random, 14)
		inventory := newInventory(t, nodes[:10], policy)
		var all []*Ratings
		for _, p := range asked(random, 8) {
			r, err := inventory.Ratings(&p)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
		var held []Assignment
		for step := range 120 {
			r := all[random.IntN(len(all))]
			switch at := random.IntN(14); random.IntN(6) {
			case 0:
				n := spare[at]
				n.Name = fmt.Sprint("n", random.IntN(14))
				if err := inventory.Put(bare(n)); err != nil {
					t.Fatal(err)
				}
			case 1:
				_ = inventory.Remove(fmt.Sprint("n", at))
			case 2:
				inventory.ObservePod(&r.pod)
			case 3:
				if len(held) > 0 {
					inventory.Release(held[0])
					held = held[1:]
				}
			default:
				r.Update()
				for node := range inventory.Len() {
					if a, fits := r.Assignment(node); fits {
						if err := inventory.Reserve(a); err != nil {
							t.Fatal(err)
						}
						held = append(held, a)
						break
					}
				}
			}
			if r.Update(); step%4 == 0 {
				checkRatings(t, r)
			}
		}
	}
}

// A pod of several claims that does not fit is refused for the claim that lacks the most, then for the host, and then
// because not all fit together.
func TestCausesOfPods(t *testing.T) {
	inventory := newInventory(t, []Node{
		{Name: "small", CPU: 8000, Memory: 1 << 40, GPUs: []GPU{{UUID: "GPU-a", Capacity: 8 << 30}}},
		{Name: "ill", CPU: 8000, Memory: 1 << 40, GPUs: []GPU{{UUID: "GPU-b", Capacity: 32 << 30, Fault: "lost"}}},
		{Name: "one", CPU: 8000, Memory: 1 << 40, GPUs: []GPU{{UUID: "GPU-c", Capacity: 32 << 30}}},
		{Name: "none", CPU: 8000, Memory: 1 << 40},
		{Name: "large", CPU: 8000, Memory: 1 << 40, GPUs: []GPU{{UUID: "GPU-d", Capacity: 64 << 30}}},
	}, DefaultPolicy)
	claim := func(bytesOf uint64) []Request { return []Request{{Count: 1, Memory: bytes(bytesOf)}} }
	for cpu, want := range map[int64][]Cause{
		0:    {CauseCapacity, CauseFault, CauseTogether, CauseCount, CauseNone},
		9000: {CauseCapacity, CauseFault, CauseHost, CauseCount, CauseHost},
	} {
		r, err := inventory.Ratings(&Pod{Claims: [][]Request{claim(4 << 30), claim(30 << 30)}, CPU: cpu})
		if err != nil {
			t.Fatal(err)
		}
		r.Update()
		for node := range want {
			if got := r.Cause(node); got != want[node] {
				t.Errorf("%d thousandths, node %s: %v, want %v", cpu, inventory.Node(node).Name, got, want[node])
			}
		}
	}
}
