package alloc

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// eight is a node of two sockets with four PCIe switches, two GPUs and one
// adapter under each.
func eight() Node {
	n := Node{Name: "eight", CPU: 64000, Memory: 256 * gib}
	for i := range 8 {
		n.GPUs = append(n.GPUs, GPU{UUID: fmt.Sprint("g", i), Index: i, Model: "A800", Capacity: 80 * gib})
		row := make([]Relation, 8)
		for j := range row {
			switch {
			case i/2 == j/2:
				row[j] = RelationSwitch
			case i/4 == j/4:
				row[j] = RelationNUMA
			default:
				row[j] = RelationSystem
			}
		}
		n.Near = append(n.Near, row)
	}
	for i := range 4 {
		nic := NIC{Name: fmt.Sprint("mlx", i), Near: make([]Relation, 8)}
		for j := range nic.Near {
			nic.Near[j] = RelationSystem
			if j/2 == i {
				nic.Near[j] = RelationSwitch
			}
		}
		n.NICs = append(n.NICs, nic)
	}
	return n
}

func search(t *testing.T, inventory *Inventory, r Request) Assignment {
	t.Helper()
	a, err := Search(inventory, r)
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	return a
}

func gpusOf(a Assignment) (uuids []string) {
	for _, g := range a.Shares {
		uuids = append(uuids, g.UUID)
	}
	return uuids
}

func TestNearGPUs(t *testing.T) {
	inventory := newInventory(t, []Node{eight()}, "bestfit")
	if err := inventory.Reserve(search(t, inventory, Request{Count: 1, Among: "g0", Whole: true})); err != nil {
		t.Fatal(err)
	}
	a := search(t, inventory, Request{Count: 2, Whole: true, Near: RelationSwitch})
	if x, y := a.Shares[0].GPU, a.Shares[1].GPU; x/2 != y/2 || x/2 == 0 {
		t.Errorf("GPUs %v are not under one switch", gpusOf(a))
	}
	if _, err := Search(inventory, Request{Count: 3, Whole: true, Near: RelationSwitch}); err == nil {
		t.Error("three GPUs under a switch with two")
	}
	a = search(t, inventory, Request{Count: 4, Whole: true, Near: RelationNUMA})
	for _, g := range a.Shares {
		if g.GPU < 4 {
			t.Errorf("GPUs %v: only the second socket has four free", gpusOf(a))
		}
	}
}

func TestPairsOfGPUAndAdapter(t *testing.T) {
	inventory := newInventory(t, []Node{eight()}, "bestfit")
	a := search(t, inventory, Request{Count: 4, Whole: true, Pair: RelationSwitches})
	seen := map[string]bool{}
	for _, g := range a.Shares {
		if g.NIC != fmt.Sprint("mlx", g.GPU/2) || seen[g.NIC] {
			t.Errorf("GPU %d has adapter %s", g.GPU, g.NIC)
		}
		seen[g.NIC] = true
	}
	if err := inventory.Reserve(a); err != nil {
		t.Fatal(err)
	}
	if _, err := Search(inventory, Request{Count: 1, Whole: true, Pair: RelationSwitches}); err == nil {
		t.Error("a fifth pair with four adapters")
	}
	inventory.Unreserve(a)
	search(t, inventory, Request{Count: 1, Whole: true, Pair: RelationSwitches})
}

func TestTopologyPolicyChoosesNearGPUs(t *testing.T) {
	inventory := newInventory(t, []Node{eight()}, "topology")
	a := search(t, inventory, Request{Count: 2, Whole: true})
	if a.Shares[0].GPU/2 != a.Shares[1].GPU/2 {
		t.Errorf("GPUs %v", gpusOf(a))
	}
}

func TestSameGPU(t *testing.T) {
	inventory := newInventory(t, []Node{eight()}, "bestfit")
	a := search(t, inventory, Request{Count: 3, Memory: v1alpha1.Percent(30), Cores: 30, Same: true})
	if a.Shares[0].GPU != a.Shares[1].GPU || a.Shares[1].GPU != a.Shares[2].GPU {
		t.Errorf("GPUs %v", gpusOf(a))
	}
	if _, err := Search(inventory, Request{Count: 4, Memory: v1alpha1.Percent(30), Same: true}); err == nil {
		t.Error("four times 30 % on one GPU")
	}
}

func TestMIG(t *testing.T) {
	profiles := []Profile{{Name: "1g", Size: 1, Starts: []int{0, 1, 2, 3, 4, 5, 6}}, {Name: "3g", Size: 4, Starts: []int{0, 4}}}
	inventory := newInventory(t, []Node{{GPUs: []GPU{{UUID: "m", Capacity: 80 * gib, Profiles: profiles}}}}, "bestfit")
	small := search(t, inventory, Request{Count: 1, Profile: "1g"})
	if err := inventory.Reserve(small); err != nil {
		t.Fatal(err)
	}
	large := search(t, inventory, Request{Count: 1, Profile: "3g"})
	if err := inventory.Reserve(large); err != nil {
		t.Fatal(err)
	}
	if _, err := Search(inventory, Request{Count: 1, Profile: "3g"}); !Waits(err) {
		t.Errorf("a second 3g beside a 1g: %v", err)
	}
	if _, err := Search(inventory, Request{Count: 1, Memory: bytes(gib)}); err == nil || Waits(err) {
		t.Errorf("a share of a GPU in MIG mode: %v", err)
	}
	inventory.Unreserve(small)
	search(t, inventory, Request{Count: 1, Profile: "3g"})
}

func TestRefusalOfACluster(t *testing.T) {
	nodes := []Node{}
	for i := range 3 {
		nodes = append(nodes, Node{Name: fmt.Sprint(i), CPU: 8000, Memory: gib, GPUs: []GPU{
			{UUID: fmt.Sprint(i), Model: "T4", Capacity: 16 * gib, Granted: 12 * gib, Cores: 80, Tenants: 1},
		}})
	}
	nodes = append(nodes, Node{Name: "host", CPU: 8000, Memory: gib})
	inventory := newInventory(t, nodes, DefaultPolicy)
	for _, test := range []struct {
		request Request
		reason  Reason
		text    string
	}{
		{Request{Count: 1, Memory: bytes(4 * gib), Cores: 50}, ReasonFull, "3 nodes have 4Gi not granted but only 20 cores"},
		{Request{Count: 1, Memory: bytes(5 * gib)}, ReasonFull, "at most 4Gi left on a GPU"},
		{Request{Count: 1, Memory: bytes(gib), CPU: 9000}, ReasonNever, "3: host too small"},
		{Request{Count: 1, Memory: bytes(gib), Models: "H100"}, ReasonNever, "3: another model"},
		{Request{Count: 1, Among: "nobody"}, ReasonUnknown, "GPU nobody does not exist"},
		{Request{Count: 2, Whole: true}, ReasonNever, "4: too few GPUs"},
	} {
		_, err := Search(inventory, test.request)
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Reason != test.reason || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%+v: %v; want %q", test.request, err, test.text)
		}
	}
}

func TestInvalidRequestsAndInventories(t *testing.T) {
	inventory := newInventory(t, []Node{eight()}, DefaultPolicy)
	for _, r := range []Request{
		{Count: -1}, {Count: MaxGPUs + 1}, {Count: 1, Cores: 101}, {CPU: -1},
		{Count: 2, Whole: true, Same: true}, {Count: 1, Profile: "1g", Cores: 5}, {Count: 1, Near: RelationNVLink + 1},
	} {
		if _, err := Search(inventory, r); !errors.Is(err, ErrRequest) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	policy, _ := PolicyNamed(DefaultPolicy)
	bad := eight()
	bad.Near = bad.Near[:3]
	for name, nodes := range map[string][]Node{
		"two of a name": {{Name: "a"}, {Name: "a"}},
		"17 GPUs":       {{GPUs: make([]GPU, 17)}},
		"relations":     {bad},
		"negative":      {{CPU: -1}},
	} {
		if _, err := NewInventory(nodes, policy); !errors.Is(err, ErrInventory) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
