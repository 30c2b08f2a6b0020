package alloc

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Choices that go on after reservations are those that begin anew, for requests with an index and without.
func TestChoicesGoOn(t *testing.T) {
	for _, policy := range []string{DefaultPolicy, "bestfit", "spread", "topology"} {
		random := rand.New(rand.NewPCG(5, 7))
		inventory := newInventory(t, randomNodes(random, 40), policy)
		compared := 0
		for i := range 45 {
			p := randomPod(random)
			if p.Validate() != nil {
				continue
			}
			var among *NodeSet
			if i%3 > 0 {
				among = &NodeSet{}
				for range []int{0, 4, 60}[i%3] {
					among.Add(random.IntN(40))
				}
			}
			going, err := inventory.PodChoices(&p, among)
			if err != nil {
				t.Fatal(err)
			}
			var trial []Assignment
			for range 5 {
				fresh, err := inventory.PodChoices(&p, among)
				if err != nil {
					t.Fatal(err)
				}
				want, fits := fresh.Next()
				got, ok := going.Next()
				if ok != fits || !got.equal(&want) || got.Node != want.Node || ok && going.Rank() != fresh.Rank() {
					t.Fatalf("%s: %+v: after %d of them the choice is %+v, and anew it is %+v", policy, p, len(trial), got, want)
				}
				if !ok {
					break
				}
				compared++
				if err := inventory.Reserve(got); err != nil {
					t.Fatal(err)
				}
				if i%2 == 0 {
					inventory.SetAside(got)
				}
				trial = append(trial, got)
				going.Again(got.Node)
			}
			for _, a := range trial {
				inventory.PutBack(a)
				inventory.Unreserve(a)
			}
		}
		if compared < 60 {
			t.Fatalf("%s: only %d choices", policy, compared)
		}
	}
}

// No request gets a GPU that is set aside, and there is never more room than Room says. When all is put back, the
// inventory is as it was.
func TestGPUsThatAreSetAside(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 9))
	inventory := newInventory(t, randomNodes(random, 20), DefaultPolicy)
	before := snapshot(inventory)
	whole, exact := 0, 0
	for range 150 {
		p := randomPod(random)
		room, err := inventory.Room(&p, true)
		if err != nil {
			continue
		}
		node := random.IntN(20)
		only := &NodeSet{}
		only.Add(node)
		most := room(node, 100)
		var trial []Assignment
		mine := map[string]bool{}
		for {
			choices, err := inventory.PodChoices(&p, only)
			if err != nil {
				t.Fatal(err)
			}
			a, ok := choices.Next()
			if !ok || len(trial) == 100 {
				break
			}
			for _, s := range a.Shares {
				if mine[s.UUID] {
					t.Fatalf("GPU %s was set aside", s.UUID)
				}
			}
			for _, s := range a.Shares {
				mine[s.UUID] = true
			}
			if err := inventory.Reserve(a); err != nil {
				t.Fatal(err)
			}
			inventory.SetAside(a)
			trial = append(trial, a)
			whole += len(a.Shares)
		}
		if len(trial) > most {
			t.Fatalf("%+v: there is room for %d and Room says %d", p, len(trial), most)
		}
		if len(trial) == most {
			exact++
		}
		slices.Reverse(trial)
		for _, a := range trial {
			inventory.PutBack(a)
			inventory.Unreserve(a)
		}
	}
	if whole < 100 || exact < 50 {
		t.Fatalf("%d shares were placed, and Room was exact %d times", whole, exact)
	}
	for i, was := range snapshot(inventory) {
		if n, ok := was.(Node); ok && !slices.EqualFunc(n.GPUs, before[i].(Node).GPUs, func(a, b GPU) bool {
			return a.Granted == b.Granted && a.Tenants == b.Tenants && a.Cores == b.Cores && a.aside == b.aside
		}) {
			t.Fatal("the inventory is not as it was")
		}
	}
}

// A refusal speaks of the nodes that were allowed alone, and of GPUs that are set aside.
func TestRefusalAmongNodes(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	inventory := newInventory(t, randomNodes(random, 30), DefaultPolicy)
	r := Request{Count: 1, Memory: v1alpha1.Bytes(1 << 30)}
	among := &NodeSet{}
	for node := range 7 {
		among.Add(node)
	}
	for {
		choices, err := inventory.Choices(r, among)
		if err != nil {
			t.Fatal(err)
		}
		a, ok := choices.Next()
		if !ok {
			text := choices.Refusal().Error()
			if !strings.Contains(text, "none of 7 nodes fits") || !strings.Contains(text, CauseAside.String()) {
				t.Error(text)
			}
			return
		}
		inventory.SetAside(a)
	}
}
