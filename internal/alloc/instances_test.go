package alloc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
)

// hopper has the profiles of an H100.
func hopper(t *testing.T) []Profile {
	t.Helper()
	text, err := os.ReadFile("../../testdata/mig/h100-80gb.txt")
	if err != nil {
		t.Fatal(err)
	}
	profiles, err := layouts.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return profiles
}

// migNodes are machines with two GPUs each in MIG mode.
func migNodes(t *testing.T, n int) (nodes []Node) {
	t.Helper()
	profiles := hopper(t)
	for i := range n {
		node := Node{Name: fmt.Sprint("node", i)}
		for j := range 2 {
			node.GPUs = append(node.GPUs, GPU{UUID: fmt.Sprintf("%d/%d", i, j), Index: j, Model: "H100", Capacity: 80 * gib, Profiles: profiles})
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// Whatever is asked for and ends: no two instances share a memory slice, every one is a placement of the driver's, what
// fits by the driver's rules is placed, and what is undone leaves nothing.
func TestInstancesNeverOverlap(t *testing.T) {
	profiles := hopper(t)
	inventory := newInventory(t, migNodes(t, 2), DefaultPolicy)
	random := rand.New(rand.NewPCG(1, 2))
	var held []Assignment
	for range 400 {
		p := profiles[random.IntN(len(profiles))]
		r := Request{Count: 1 + random.IntN(2), Profile: p.Name}
		inventory.Observe(r)
		a, err := Search(inventory, r)
		var refusal *Refusal
		switch {
		case errors.As(err, &refusal):
		case err != nil:
			t.Fatal(err)
		default:
			if err := inventory.Reserve(a); err != nil {
				t.Fatalf("%+v: %v", a, err)
			}
			held = append(held, a)
		}
		apart(t, held, profiles)
		for len(held) > 0 && random.IntN(3) > 0 {
			i := random.IntN(len(held))
			inventory.Unreserve(held[i])
			held = slices.Delete(held, i, i+1)
			if random.IntN(2) == 0 {
				break
			}
		}
	}
	for _, a := range held {
		inventory.Unreserve(a)
	}
	for i := range inventory.nodes {
		for _, g := range inventory.nodes[i].GPUs {
			if g.Slices != 0 || g.Instances != 0 || g.Tenants != 0 {
				t.Errorf("all has ended, and %s has %+v", g.UUID, g)
			}
		}
	}
}

// apart fails the test where two instances lie over each other, or one at no start of its profile.
func apart(t *testing.T, held []Assignment, profiles []Profile) {
	t.Helper()
	taken := map[string]bool{}
	for _, a := range held {
		for _, s := range a.Shares {
			p := profiles[slices.IndexFunc(profiles, func(p Profile) bool { return p.Name == s.Profile })]
			if !slices.Contains(p.Starts, s.Start) {
				t.Fatalf("%s begins at %d", s.Profile, s.Start)
			}
			for at := s.Start; at < s.Start+p.Size; at++ {
				id := fmt.Sprint(s.UUID, " ", at)
				if taken[id] {
					t.Fatalf("two have slice %s", id)
				}
				taken[id] = true
			}
		}
	}
}

// What was there before, of ours or of others, keeps its place.
func TestInstancesBesideOthers(t *testing.T) {
	nodes := migNodes(t, 1)[:1]
	nodes[0].GPUs = nodes[0].GPUs[:1]
	g := &nodes[0].GPUs[0]
	model, err := layouts.NewModel(g.Profiles)
	if err != nil {
		t.Fatal(err)
	}
	g.Instances = model.Placed(model.Profile("1g.10gb"), 6)
	g.Slices = model.Slices(g.Instances) | 1<<1 // and slice 1 is somebody's of whom the profiles tell nothing
	inventory := newInventory(t, nodes, DefaultPolicy)
	for profile, want := range map[string]bool{"3g.40gb": false, "4g.40gb": false, "7g.80gb": false, "2g.20gb": true, "1g.20gb": true} {
		a, err := Search(inventory, Request{Count: 1, Profile: profile})
		if (err == nil) != want {
			t.Errorf("%s: %+v, %v", profile, a, err)
		}
		if err == nil && a.Shares[0].Start != 2 && a.Shares[0].Start != 4 {
			t.Errorf("%s begins at %d", profile, a.Shares[0].Start)
		}
	}
	a := search(t, inventory, Request{Count: 1, Profile: "1g.10gb"})
	a.Shares[0].Start = 1
	if err := inventory.Reserve(a); !errors.Is(err, ErrAssignment) {
		t.Errorf("an instance over another's slice: %v", err)
	}
	a.Shares[0].Profile, a.Shares[0].Start = "2g.20gb", 3
	if err := inventory.Reserve(a); !errors.Is(err, ErrAssignment) {
		t.Errorf("an instance at no start of its profile: %v", err)
	}
}

// A GPU with room for a small instance beside others is taken before an empty one, which a large one can use.
func TestInstancesFillGPUs(t *testing.T) {
	inventory := newInventory(t, migNodes(t, 2), DefaultPolicy)
	gpus := map[string]bool{}
	for range 7 {
		a := search(t, inventory, Request{Count: 1, Profile: "1g.10gb"})
		if err := inventory.Reserve(a); err != nil {
			t.Fatal(err)
		}
		gpus[a.Shares[0].UUID] = true
	}
	if len(gpus) != 1 {
		t.Errorf("seven 1g lie on %d GPUs", len(gpus))
	}
	if one := search(t, inventory, Request{Count: 2, Profile: "7g.80gb"}); len(one.Shares) != 2 || one.Node != 1 {
		t.Errorf("two 7g: %+v", one)
	}
}

// Inventories of the same GPUs share what was learnt.
func TestMixesOutliveTheInventory(t *testing.T) {
	var mixes Mixes
	one := newInventory(t, migNodes(t, 1), DefaultPolicy)
	if err := one.Learn(&mixes); err != nil {
		t.Fatal(err)
	}
	for i := range 120 {
		one.Observe(Request{Count: 1, Profile: []string{"1g.10gb", "1g.10gb", "1g.10gb", "3g.40gb"}[i%4]})
	}
	two := newInventory(t, migNodes(t, 1), DefaultPolicy)
	if err := two.Learn(&mixes); err != nil {
		t.Fatal(err)
	}
	mix := two.kinds.all[0].mixes[0]
	learnt, asked := mix.Weights(), mix.Model().Profile("1g.10gb")
	other := mix.Model().Profile("7g.80gb")
	if learnt[asked] < 50*learnt[other] {
		t.Errorf("after 90 requests for 1g of 120 the weights are %v", learnt)
	}
	if unlearnt := newInventory(t, migNodes(t, 1), DefaultPolicy).kinds.all[0].mixes[0].Weights(); unlearnt[asked] != unlearnt[other] {
		t.Errorf("before any request the weights are %v", unlearnt)
	}
}
