package alloc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// randomNodes are a few nodes of several kinds, with odd sizes so that nothing
// divides evenly.
func randomNodes(random *rand.Rand, count int) []Node {
	var nodes []Node
	for i := range count {
		n := Node{Name: fmt.Sprint("n", i), CPU: int64(8000 * (1 + random.IntN(12))), Memory: uint64(1+random.IntN(64)) << 30}
		model := random.IntN(3)
		for j := range random.IntN(9) {
			n.GPUs = append(n.GPUs, GPU{
				UUID: fmt.Sprintf("%d/%d", i, j), Index: j, Model: fmt.Sprint("m", model), Capacity: uint64(model+1)*10_000_000_019 + 7,
			})
		}
		for range n.GPUs {
			row := make([]Relation, len(n.GPUs))
			for k := range row {
				row[k] = Relation(1 + (len(n.Near)/2+k/2)%2*5)
			}
			n.Near = append(n.Near, row)
		}
		for j := range random.IntN(3) {
			nic := NIC{Name: fmt.Sprint("nic", j), Near: make([]Relation, len(n.GPUs)), Slots: random.IntN(3)}
			for k := range nic.Near {
				nic.Near[k] = Relation(random.IntN(7))
			}
			n.NICs = append(n.NICs, nic)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// randomRequest draws from some forty, so that shapes repeat.
func randomRequest(random *rand.Rand) Request {
	r := Request{Count: random.IntN(4), CPU: int64(random.IntN(5) * 3000), HostMemory: uint64(random.IntN(3)) * 1_000_000_007}
	if random.IntN(8) == 0 {
		r.Count = 8
	}
	switch random.IntN(3) {
	case 0:
		r.Whole = true
	case 1:
		r.Memory, r.Cores = v1alpha1.Bytes(uint64(1+random.IntN(4))*2_500_000_003), random.IntN(3)*30
	case 2:
		r.Memory = v1alpha1.Percent(uint8(1 + random.IntN(4)*33))
	}
	switch random.IntN(12) {
	case 0:
		r.Models = Names(fmt.Sprintf("m%d|m9", random.IntN(3)))
	case 1:
		r.AvoidModels = Names(fmt.Sprint("m", random.IntN(3)))
	case 2:
		r.Near = RelationNVLink
	case 3:
		if r.Count > 0 {
			r.Pair = reaches[random.IntN(len(reaches))]
		}
	case 4:
		r.Same = !r.Whole
	}
	return r
}

func newInventory(t *testing.T, nodes []Node, policy string) *Inventory {
	t.Helper()
	p, err := PolicyNamed(policy)
	if err != nil {
		t.Fatal(err)
	}
	inventory, err := NewInventory(nodes, p)
	if err != nil {
		t.Fatal(err)
	}
	return inventory
}

// checkSums fails the test when anything is given twice.
func checkSums(t *testing.T, inventory *Inventory) {
	t.Helper()
	for i := range inventory.nodes {
		n := &inventory.nodes[i]
		if n.CPUUsed < 0 || n.CPUUsed > n.CPU || n.MemoryUsed > n.Memory {
			t.Fatalf("node %s has %d of %d processors, %d of %d bytes in use", n.Name, n.CPUUsed, n.CPU, n.MemoryUsed, n.Memory)
		}
		for _, g := range n.GPUs {
			if g.Granted > g.Capacity || g.Cores > 100 || g.Cores < 0 || g.Tenants < 0 {
				t.Fatalf("GPU %s: %+v", g.UUID, g)
			}
		}
		for _, nic := range n.NICs {
			if nic.Granted < 0 || nic.Granted > max(1, nic.Slots) {
				t.Fatalf("adapter %s of %s is given %d times", nic.Name, n.Name, nic.Granted)
			}
		}
	}
}

// fitsSomewhere decides by looking at every node, without index or policy.
func fitsSomewhere(inventory *Inventory, r Request) bool {
	for node := range inventory.nodes {
		c := inventory.newShape(r)
		if _, cause := inventory.arrange(c, node); cause == CauseNone {
			return true
		}
	}
	return false
}

// Whatever arrives and departs, nothing is over capacity, what fits anywhere is
// placed, and the index answers as one made anew.
func TestRandomSequences(t *testing.T) {
	for _, policy := range PolicyNames() {
		t.Run(policy, func(t *testing.T) {
			for seed := range uint64(4) {
				random := rand.New(rand.NewPCG(seed, 7))
				inventory := newInventory(t, randomNodes(random, 12), policy)
				var held []Assignment
				for range 250 {
					if len(held) > 0 && random.IntN(3) == 0 {
						i := random.IntN(len(held))
						inventory.Unreserve(held[i])
						held = append(held[:i], held[i+1:]...)
						continue
					}
					r := randomRequest(random)
					if r.Validate() != nil {
						continue
					}
					inventory.Observe(r)
					assignment, err := Search(inventory, r)
					if fits := fitsSomewhere(inventory, r); fits != (err == nil) {
						t.Fatalf("seed %d: %+v fits somewhere: %v, but the answer is %v", seed, r, fits, err)
					}
					if err != nil {
						continue
					}
					checkIndex(t, inventory, r)
					if err := inventory.Reserve(assignment); err != nil {
						t.Fatalf("seed %d: %+v: %v", seed, r, err)
					}
					held = append(held, assignment)
					checkSums(t, inventory)
				}
			}
		})
	}
}

// checkIndex compares the keys with fresh ones.
func checkIndex(t *testing.T, inventory *Inventory, r Request) {
	t.Helper()
	c := inventory.shapes.by[r]
	if c == nil || c.index == nil || inventory.policy.random {
		return
	}
	for node := range inventory.nodes {
		if key, _ := inventory.evaluate(c, node); key != c.index.tree[c.index.base+node] {
			t.Fatalf("node %d has key %x in the index and %x afresh, for %+v", node, c.index.tree[c.index.base+node], key, r)
		}
	}
	x := c.index
	for i := 1; i < x.base; i++ {
		if x.tree[i] != min(x.tree[2*i], x.tree[2*i+1]) {
			t.Fatalf("the winner at %d is wrong", i)
		}
	}
}

func TestUnreserveRestoresTheState(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	inventory := newInventory(t, randomNodes(random, 10), DefaultPolicy)
	var held []Assignment
	before := snapshot(inventory)
	for range 200 {
		r := randomRequest(random)
		if r.Validate() != nil {
			continue
		}
		if a, err := Search(inventory, r); err == nil {
			if err := inventory.Reserve(a); err != nil {
				t.Fatal(err)
			}
			held = append(held, a)
		}
	}
	if len(held) < 10 {
		t.Fatalf("only %d were placed", len(held))
	}
	random.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
	for _, a := range held {
		inventory.Unreserve(a)
	}
	if after := snapshot(inventory); !reflect.DeepEqual(before, after) {
		t.Error("the inventory is not as it was")
	}
}

// snapshot copies nodes and states.
func snapshot(inventory *Inventory) []any {
	var all []any
	for i := range inventory.nodes {
		n := inventory.nodes[i]
		n.GPUs = append([]GPU(nil), n.GPUs...)
		n.NICs = append([]NIC(nil), n.NICs...)
		r := inventory.entries[i]
		all = append(all, n, r.state, r.held)
	}
	return all
}

func TestSameInputSameAnswer(t *testing.T) {
	var first []string
	for run := range 3 {
		random := rand.New(rand.NewPCG(9, 9))
		inventory := newInventory(t, randomNodes(random, 15), DefaultPolicy)
		for i := range 200 {
			r := randomRequest(random)
			if r.Validate() != nil {
				continue
			}
			inventory.Observe(r)
			a, err := Search(inventory, r)
			if err == nil {
				err = inventory.Reserve(a)
			}
			answer := fmt.Sprint(i, a.Name, a.Shares, err)
			if run == 0 {
				first = append(first, answer)
			} else if len(first) == 0 || first[0] != answer {
				t.Fatalf("run %d: %q differs", run, answer)
			} else {
				first = append(first[1:], first[0])
			}
		}
	}
}

// Requests that are equal are interchangeable: only the order of the shapes
// can matter, never which of two equal ones came first.
func TestOrderOfEqualRequestsIsIrrelevant(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	requests := make([]Request, 60)
	for i := range requests {
		requests[i] = Request{Count: 1, Memory: v1alpha1.Percent(uint8(20 + 15*(i%3))), CPU: 1000}
	}
	order := make([]int, len(requests))
	for i := range order {
		order[i] = i
	}
	var want []any
	for range 5 {
		inventory := newInventory(t, randomNodes(rand.New(rand.NewPCG(1, 1)), 8), DefaultPolicy)
		for _, i := range order {
			inventory.Observe(requests[i])
			if a, err := Search(inventory, requests[i]); err == nil {
				if err := inventory.Reserve(a); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := snapshot(inventory); want == nil {
			want = got
		} else if !reflect.DeepEqual(want, got) {
			t.Fatal("another order of equal requests led elsewhere")
		}
		// Exchange only equals: positions with the same remainder.
		for i := range order {
			j := (i + 3*random.IntN(20)) % len(order)
			order[i], order[j] = order[j], order[i]
		}
	}
}

func TestReserveRefusesWhatDoesNotFit(t *testing.T) {
	inventory := host(t, GPU{UUID: "a", Capacity: 10 * gib})
	a, err := Search(inventory, Request{Count: 1, Memory: bytes(6 * gib)})
	if err != nil {
		t.Fatal(err)
	}
	if err := inventory.Reserve(a); err != nil {
		t.Fatal(err)
	}
	if err := inventory.Reserve(a); !errors.Is(err, ErrAssignment) {
		t.Errorf("the same 6Gi of 10Gi were given twice: %v", err)
	}
	if used := inventory.nodes[0].GPUs[0].Granted; used != 6*gib {
		t.Errorf("%d bytes are granted", used)
	}
}

// Sixteen halves on eight GPUs are two on each, whatever the policy.
func TestHalves(t *testing.T) {
	for _, policy := range PolicyNames() {
		var gpus []GPU
		for i := range 8 {
			gpus = append(gpus, GPU{UUID: fmt.Sprint(i), Index: i, Capacity: 80 * gib})
		}
		inventory := newInventory(t, []Node{{GPUs: gpus}}, policy)
		for i := range 16 {
			a, err := Search(inventory, Request{Count: 1, Memory: v1alpha1.Percent(50), Cores: 50})
			if err != nil {
				t.Fatalf("%s: request %d: %v", policy, i, err)
			}
			if err := inventory.Reserve(a); err != nil {
				t.Fatal(err)
			}
		}
		for _, g := range inventory.nodes[0].GPUs {
			if g.Tenants != 2 {
				t.Errorf("%s: GPU %s has %d", policy, g.UUID, g.Tenants)
			}
		}
	}
}

// Guaranteed cores beyond a whole GPU are given only to who asks for it by name.
func TestOvercommitOfCores(t *testing.T) {
	gpus := []GPU{{UUID: "a", Capacity: 80 << 30, Cores: 70, Tenants: 1}}
	inventory, err := Host(gpus)
	if err != nil {
		t.Fatal(err)
	}
	request := Request{Count: 1, Memory: v1alpha1.Bytes(1 << 30), Cores: 40}
	if _, err := Search(inventory, request); err == nil || !strings.Contains(err.Error(), "30 of 100 cores left") {
		t.Errorf("110 cores: %v", err)
	}
	request.Overcommit = true
	if _, err := Search(inventory, request); err == nil {
		t.Error("overcommitted memory overcommits cores")
	}
	request.OvercommitCores = true
	assignment, err := Search(inventory, request)
	if err != nil {
		t.Fatal(err)
	}
	if err := inventory.Reserve(assignment); err != nil {
		t.Fatal(err)
	}
	if got := inventory.nodes[0].GPUs[0].Cores; got != 110 {
		t.Errorf("%d cores are guaranteed, want 110", got)
	}
}
