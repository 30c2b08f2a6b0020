package alloc

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// empty are so many nodes with 8 GPUs of 40 GiB that nobody has.
func empty(count int) (nodes []Node) {
	for i := range count {
		n := Node{Name: fmt.Sprint("n", i), CPU: 64000, Memory: 1 << 40}
		for k := range 8 {
			n.GPUs = append(n.GPUs, GPU{UUID: fmt.Sprintf("%d-%d", i, k), Index: k, Capacity: 40 * gib, Slots: 16})
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// shares are equal claims, each for so many GPUs.
func shares(claims, gpus int, gibs uint64, cores int) (all [][]Request) {
	for range claims {
		all = append(all, []Request{{Count: gpus, Memory: bytes(gibs * gib), Cores: cores}})
	}
	return all
}

func rated(t *testing.T, inventory *Inventory, claims ...[]Request) *Ratings {
	t.Helper()
	r, err := inventory.Ratings(&Pod{Claims: claims})
	if err != nil {
		t.Fatal(err)
	}
	r.Update()
	return r
}

// fitting counts the nodes on which a pod fits, and those on which not every way was tried.
func (r *Ratings) fitting() (fit, broken int) {
	for node := range r.inv.Len() {
		if r.Cause(node) == CauseNone {
			fit++
		} else if r.Cause(node) == CauseTries {
			broken++
		}
	}
	return fit, broken
}

// Shares for which GPUs have certainly no room together are refused without a search, by memory, by cores and by slots.
func TestTooManyShares(t *testing.T) {
	nodes := empty(4)
	for i := range nodes[3].GPUs {
		nodes[3].GPUs[i].Tenants = 15
	}
	for name, c := range map[string]struct {
		claims [][]Request
		fit    int
	}{
		"nine large":            {shares(9, 1, 25, 0), 0},
		"eight large":           {shares(8, 1, 25, 0), 4},
		"a small one beside":    {append(shares(1, 1, 1, 0), shares(9, 1, 25, 0)...), 0},
		"a small one of a slot": {append(shares(1, 1, 1, 0), shares(8, 1, 25, 0)...), 3},
		"nine with most cores":  {shares(9, 1, 1, 60), 0},
		"eight with most cores": {shares(8, 1, 1, 60), 4},
		"pairs":                 {shares(5, 2, 25, 0), 0},
		"as many pairs":         {shares(4, 2, 25, 0), 4},
	} {
		inventory := newInventory(t, nodes, DefaultPolicy)
		r := rated(t, inventory, c.claims...)
		fit := 0
		for node := range nodes {
			before := inventory.looked
			if _, fits := r.Key(node); fits {
				fit++
			} else if inventory.looked != before {
				t.Errorf("%s: node %d was searched", name, node)
			}
			if cause := r.Cause(node); cause != CauseNone && cause != CauseTogether {
				t.Errorf("%s: %v", name, cause)
			}
		}
		if fit != c.fit {
			t.Errorf("%s: it fits on %d nodes, want %d", name, fit, c.fit)
		}
	}
}

// puzzling is a pod whose claims GPUs of 40 GiB seem to have room for and do not have together, which only trying tells.
func puzzling() [][]Request { return append(shares(3, 4, 10, 0), shares(3, 3, 18, 0)...) }

// However many nodes a puzzling pod is asked about, what is tried is bounded, and remembered until something changes; a node that has
// room is found among them.
func TestTriesAreBounded(t *testing.T) {
	const count = 600
	nodes := empty(count)
	for i := range nodes[count-1].GPUs {
		nodes[count-1].GPUs[i].Capacity = 160 * gib
	}
	inventory := newInventory(t, nodes, DefaultPolicy)
	r := rated(t, inventory, puzzling()...)
	claims := len(puzzling())
	const set = 1 + 70 // an arrangement of 4 of 8 GPUs
	if fit, broken := r.fitting(); fit != 1 || broken != count-1 {
		t.Errorf("it fits on %d of %d nodes, and on %d not all was tried", fit, count, broken)
	}
	if most := mostTries + set + count*set*(2*claims+ownTries); inventory.looked > most {
		t.Errorf("looked at %d, want at most %d", inventory.looked, most)
	}
	if r.spare > 0 {
		t.Fatalf("%d is spare: the pod is no puzzle", r.spare)
	}
	before := inventory.looked
	r.Update()
	if fit, broken := r.fitting(); fit+broken != count || inventory.looked != before {
		t.Errorf("what is known was looked at again, %d times", inventory.looked-before)
	}
	// A node that changes is tried anew, and no other.
	if err := inventory.Reserve(Assignment{Node: 7, Name: "n7", Shares: []Share{{UUID: "7-0", Limit: gib}}}); err != nil {
		t.Fatal(err)
	}
	before = inventory.looked
	r.Update()
	fit, broken := r.fitting()
	if most := triesAgain + set*(1+2*claims+ownTries); fit+broken != count || inventory.looked == before || inventory.looked-before > most {
		t.Errorf("looked at %d for a node that changed, want at most %d; it fits on %d, and %d are not known", inventory.looked-before, most, fit, broken)
	}
	if a, fits := r.Assignment(count - 1); !fits || len(a.Shares) != 21 || inventory.Reserve(a) != nil {
		t.Errorf("%+v, %v", a, fits)
	}
}

// Where a thousand nodes are given as deployments do it, the bound on tries changes no answer.
func TestTriesSuffice(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 6))
	nodes := empty(1000)
	for i := range nodes {
		for k := range nodes[i].GPUs {
			g := &nodes[i].GPUs[k]
			for range random.IntN(5) {
				if amount := uint64(1+random.IntN(4)) * 5 * gib; amount <= g.FreeMemory() {
					g.Granted, g.Tenants = g.Granted+amount, g.Tenants+1
				}
			}
		}
	}
	inventory := newInventory(t, nodes, DefaultPolicy)
	fitted, refused := 0, 0
	for range 40 {
		var claims [][]Request
		for range 2 + random.IntN(2) {
			claims = append(claims, shares(1, 1+random.IntN(2), uint64(1+random.IntN(8))*5, 0)...)
		}
		r := rated(t, inventory, claims...)
		choices, err := inventory.PodChoices(&r.pod, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := len(choices.heap)
		fit, broken := r.fitting()
		if fit != want || broken > 0 {
			t.Errorf("%+v: fits on %d nodes, want %d; %d are not known", claims, fit, want, broken)
		}
		fitted, refused = fitted+fit, refused+len(nodes)-fit
	}
	if fitted < 2000 || refused < 2000 {
		t.Errorf("%d fit, and %d do not", fitted, refused)
	}
}
