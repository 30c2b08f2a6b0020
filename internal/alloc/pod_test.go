package alloc

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// randomPod has two or three claims, some with alternatives.
func randomPod(random *rand.Rand) Pod {
	p := Pod{CPU: int64(random.IntN(4) * 4000), HostMemory: uint64(random.IntN(3)) << 30}
	for range 2 + random.IntN(2) {
		var claim []Request
		for range 1 + random.IntN(2) {
			r := randomRequest(random)
			r.CPU, r.HostMemory, r.Count = 0, 0, 1+random.IntN(2)
			r.Together = randomPlaces(random)
			if r.Validate() == nil {
				claim = append(claim, r)
			}
		}
		if len(claim) > 0 {
			p.Claims = append(p.Claims, claim)
		}
	}
	p.Bonds = randomBonds(random, len(p.Claims))
	return p
}

// exhaustive tries every choice of alternatives and of single GPUs for each share, and reports whether a pod fits on a
// node and with which alternatives first.
func exhaustive(inventory *Inventory, p *Pod, node int) ([]int, bool) {
	n := &inventory.nodes[node]
	if p.CPU > n.CPU-n.CPUUsed || p.HostMemory > n.Memory-n.MemoryUsed || inventory.entries[node].absent {
		return nil, false
	}
	chosen, placed := make([]int, len(p.Claims)), make([][]int, len(p.Claims))
	var shares func(claim, from, left int) bool
	shares = func(claim, from, left int) bool {
		if claim == len(p.Claims) {
			return true
		}
		c := inventory.newShape(p.Claims[claim][chosen[claim]])
		if left == 0 {
			left = c.request.Count
		}
		for gpu := from; gpu < len(n.GPUs); gpu++ {
			need := &c.needs[inventory.entries[node].state.kind][gpu]
			if c.fits(n, gpu, need, 1) != CauseNone || !p.bonded(n, placed, claim, gpu, c.request.Together) {
				continue
			}
			s := Share{UUID: n.GPUs[gpu].UUID, GPU: gpu, Limit: need.limit, Cores: c.request.coresOf(&n.GPUs[gpu]), Whole: c.request.Whole}
			n.give(&s, gpu, 0)
			placed[claim] = append(placed[claim], gpu)
			next := gpu + 1
			if c.request.Same {
				next = gpu
			}
			ok := false
			switch {
			case left == 1:
				ok = shares(claim+1, 0, 0)
			case c.request.Same:
				ok = c.fits(n, gpu, need, left-1) == CauseNone && shares(claim, next, left-1)
			default:
				ok = shares(claim, next, left-1)
			}
			n.takeBack(&s, gpu, false)
			placed[claim] = placed[claim][:len(placed[claim])-1]
			if ok {
				return true
			}
		}
		return false
	}
	var alternatives func(claim int) bool
	alternatives = func(claim int) bool {
		if claim == len(p.Claims) {
			return shares(0, 0, 0)
		}
		for i := range p.Claims[claim] {
			if chosen[claim] = i; alternatives(claim + 1) {
				return true
			}
		}
		return false
	}
	return chosen, alternatives(0)
}

// A pod fits on a node exactly where trying everything finds a place, and its claims get the same alternatives; the search
// leaves the inventory as it was, and what it finds can be reserved.
func TestPodsFitWhereAnythingFits(t *testing.T) {
	found := 0
	for seed := range uint64(5) {
		random := rand.New(rand.NewPCG(seed, 3))
		nodes := randomNodes(random, 8)
		for i := range nodes {
			nodes[i].NICs, nodes[i].Near = nil, nil
			if len(nodes[i].GPUs) > 4 {
				nodes[i].GPUs = nodes[i].GPUs[:4]
			}
			for j := range nodes[i].GPUs {
				nodes[i].GPUs[j].Location = Location{NUMA: uint16(1 + j/2), Switch: uint16(random.IntN(3)), Clique: 1}
			}
		}
		inventory := newInventory(t, nodes, DefaultPolicy)
		for range 150 {
			p := randomPod(random)
			skip := len(p.Claims) < 2
			for _, claim := range p.Claims {
				for _, r := range claim {
					skip = skip || r.Near != 0 || r.Pair != 0
				}
			}
			if skip {
				continue
			}
			before := snapshot(inventory)
			choices, err := inventory.PodChoices(&p, nil)
			if err != nil {
				t.Fatal(err)
			}
			places := map[int]Assignment{}
			first := -1
			for a, ok := choices.Next(); ok; a, ok = choices.Next() {
				places[a.Node] = a
				if first < 0 {
					first = a.Node
				}
			}
			if !reflect.DeepEqual(before, snapshot(inventory)) {
				t.Fatal("the search changed the inventory")
			}
			least := -1
			for node := range inventory.nodes {
				want, fits := exhaustive(inventory, &p, node)
				a, ok := places[node]
				if fits != ok {
					t.Fatalf("seed %d: %+v fits on node %d: %v, found: %v", seed, p, node, fits, ok)
				}
				if !fits {
					continue
				}
				sum := 0
				for claim, alternative := range want {
					sum += alternative
					for _, s := range a.Shares {
						if s.Claim == claim && s.Alternative != alternative {
							t.Fatalf("claim %d got alternative %d, want %d", claim, s.Alternative, alternative)
						}
					}
				}
				if least < 0 || sum < least {
					least = sum
				}
				if node == first && sum > least {
					t.Fatalf("the first choice has alternatives %v", want)
				}
			}
			if first < 0 {
				if refusal := choices.Refusal(); refusal == nil || refusal.Error() == "" {
					t.Fatalf("a pod that fits nowhere is refused with %v", refusal)
				}
				continue
			}
			found++
			inventory.ObservePod(&p)
			if err := inventory.Reserve(places[first]); err != nil {
				t.Fatal(err)
			}
			checkSums(t, inventory)
		}
	}
	if found < 50 {
		t.Errorf("only %d pods were placed", found)
	}
}

func TestPodsThatContradictThemselves(t *testing.T) {
	inventory := newInventory(t, randomNodes(rand.New(rand.NewPCG(1, 1)), 3), DefaultPolicy)
	one := Request{Count: 1, Memory: v1alpha1.Percent(50)}
	for text, p := range map[string]Pod{
		"0 alternatives":  {Claims: [][]Request{{one}, {}}},
		"9 alternatives":  {Claims: [][]Request{{one}, {one, one, one, one, one, one, one, one, one}}},
		"for the host":    {Claims: [][]Request{{one}, {{Count: 1, CPU: 5}}}},
		"asks for 0 GPUs": {Claims: [][]Request{{one}, {{}}}},
		"33 claims":       {Claims: make([][]Request, 33)},
	} {
		if _, err := inventory.PodChoices(&p, nil); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// capable are nodes with GPUs of three models, and one without.
func capable() []Node {
	nodes := []Node{{Name: "none", CPU: 64000, Memory: 1 << 40}}
	for i, c := range []Capability{{800, 108, 1410}, {900, 132, 1980}, {750, 40, 1590}} {
		model := []string{"NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "Tesla T4"}[i]
		n := Node{Name: strings.Fields(strings.ReplaceAll(model, "-", " "))[1], CPU: 64000, Memory: 1 << 40}
		for j := range 2 {
			n.GPUs = append(n.GPUs, GPU{UUID: fmt.Sprintf("%d%d", i, j), Index: j, Model: model, Capacity: 16 * gib, Capability: c})
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// Preferences order nodes before any policy, for pods without GPUs too, and never refuse; models refuse.
func TestPreferences(t *testing.T) {
	for _, policy := range []string{DefaultPolicy, "bestfit", "fgd"} {
		for _, test := range []struct {
			prefer v1alpha1.GPUPreference
			models Names
			want   string
		}{
			{"most-capable", "", "H100 A100 T4"},
			{"least-capable", "", "T4 A100 H100"},
			{"A100,T4", "", "A100 T4 H100"},
			{"least-capable", "A100|H100", "A100 H100"},
			{"", "T4", "T4"},
		} {
			for _, r := range []Request{
				{Count: 1, Memory: bytes(gib)}, {Count: 2, Memory: bytes(gib)}, {Count: 1, Whole: true}, {Count: 2, Same: true, Memory: bytes(gib)}, {},
			} {
				r.CPU, r.Prefer, r.Models = 1000, test.prefer, test.models
				choices, err := newInventory(t, capable(), policy).Choices(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for a, ok := choices.Next(); ok; a, ok = choices.Next() {
					got = append(got, a.Name)
				}
				want := test.want
				if r.Count == 0 {
					if test.models != "" {
						continue // models are those of GPUs that are asked for
					}
					want = "none " + want
				}
				if strings.Join(got, " ") != want {
					t.Errorf("%s: %+v goes to %v, want %s", policy, r, got, want)
				}
			}
		}
	}
}

// On a node with several models the one that is wanted is taken, though another one is fuller.
func TestPreferencesOnOneNode(t *testing.T) {
	var mixed Node
	for _, n := range capable() {
		mixed.GPUs = append(mixed.GPUs, n.GPUs...)
	}
	mixed.GPUs[4].Granted, mixed.GPUs[4].Tenants = gib, 1 // a T4
	mixed.CPU, mixed.Memory, mixed.Name = 1, 1, "mixed"
	for _, count := range []int{1, 2} {
		inventory := newInventory(t, []Node{mixed, {Name: "other"}}, "bestfit")
		a := search(t, inventory, Request{Count: count, Memory: bytes(gib), Prefer: "most-capable"})
		for _, s := range a.Shares {
			if g := inventory.nodes[0].GPUs[s.GPU]; !strings.Contains(g.Model, "H100") {
				t.Errorf("%d: a share is on %s", count, g.Model)
			}
		}
	}
}

// Selectors, default cores and slots are those of each GPU.
func TestClassesCoresAndSlots(t *testing.T) {
	nodes := capable()
	for i := range nodes {
		for j := range nodes[i].GPUs {
			g := &nodes[i].GPUs[j]
			g.Class, g.DefaultCores, g.Slots = uint16(10*i+j), 25*(i-1), 2
		}
	}
	inventory := newInventory(t, nodes, DefaultPolicy)
	if a := search(t, inventory, Request{Count: 1, Memory: bytes(gib), Classes: ClassesOf(21, 300)}); a.Shares[0].UUID != "11" || a.Shares[0].Cores != 25 {
		t.Errorf("class 21 is %+v", a)
	}
	if _, err := Search(inventory, Request{Count: 1, Memory: bytes(gib), Classes: ClassesOf()}); err == nil || !strings.Contains(err.Error(), "selector") {
		t.Errorf("no class: %v", err)
	}
	r := Request{Count: 1, Memory: bytes(gib), Classes: ClassesOf(31)}
	for i := range 3 {
		a, err := Search(inventory, r)
		if i == 2 {
			if err == nil || !strings.Contains(err.Error(), "no slot left") || !Waits(err) {
				t.Errorf("a third share of two slots: %+v, %v", a, err)
			}
			break
		}
		if err != nil || a.Shares[0].Cores != 50 {
			t.Fatalf("%+v, %v", a, err)
		}
		if err := inventory.Reserve(a); err != nil {
			t.Fatal(err)
		}
	}
	r.Classes = ClassesOf(30)
	r.Cores = 60
	if a := search(t, inventory, r); a.Shares[0].Cores != 60 {
		t.Errorf("cores that are asked for: %+v", a)
	}
}

// What is adopted is counted, and where it contradicts itself its GPU is fenced until that has ended.
func TestAdopt(t *testing.T) {
	inventory := newInventory(t, []Node{{Name: "n", CPU: 8000, Memory: 1 << 40, GPUs: three()}}, DefaultPolicy)
	grant := func(uuid string, limit uint64, whole bool) Assignment {
		return Assignment{Name: "n", CPU: 1000, Shares: []Share{{UUID: uuid, Limit: limit, Whole: whole}}}
	}
	small, whole := grant("GPU-a", 70*gib, false), grant("GPU-a", 80*gib, true)
	if inventory.Adopt(small) {
		t.Error("70Gi of 80Gi contradict nothing")
	}
	if _, err := Search(inventory, Request{Count: 1, Among: "GPU-a", Memory: bytes(20 * gib)}); !Waits(err) {
		t.Errorf("20Gi beside 70Gi of 80Gi: %v", err)
	}
	if !inventory.Adopt(whole) {
		t.Error("a GPU is given whole and in part, and not fenced")
	}
	if _, err := Search(inventory, Request{Count: 1, Among: "GPU-a", Memory: bytes(gib), Overcommit: true}); err == nil || !strings.Contains(err.Error(), "given twice") {
		t.Errorf("a share of a fenced GPU: %v", err)
	}
	if err := inventory.Reserve(Assignment{Name: "n", Shares: []Share{{UUID: "GPU-b", GPU: 1, Limit: gib}}}); err != nil {
		t.Errorf("the other GPUs are not fenced: %v", err)
	}
	if n := inventory.Node(0); n.CPUUsed != 2000 || n.GPUs[0].Tenants != 2 {
		t.Errorf("%+v", n)
	}
	if !inventory.Release(whole) || inventory.Node(0).GPUs[0].Fence != "" {
		t.Error("the fence outlives the contradiction")
	}
	if inventory.Release(whole) {
		t.Error("a grant is released twice")
	}
	gone := grant("GPU-z", gib, false)
	if inventory.Adopt(gone) || !inventory.Release(gone) {
		t.Error("a grant of a GPU that is not there")
	}
	inventory.Fence("n", "GPU-c", "the agent knows of other shares")
	if inventory.Node(0).GPUs[2].Fence == "" {
		t.Error("a GPU is fenced by hand and is not")
	}
	inventory.Fence("n", "GPU-c", "")
	if inventory.Node(0).GPUs[2].Fence != "" {
		t.Error("the fence was not lifted")
	}
	elsewhere := Assignment{Name: "late", Shares: []Share{{UUID: "x", Limit: gib}}}
	inventory.Adopt(elsewhere)
	if err := inventory.Put(Node{Name: "late", GPUs: []GPU{{UUID: "x", Capacity: 2 * gib}}}); err != nil {
		t.Fatal(err)
	}
	if at, ok := inventory.Position("late"); !ok || inventory.Node(at).GPUs[0].Granted != gib {
		t.Error("what was adopted before its node came is not counted")
	}
}
