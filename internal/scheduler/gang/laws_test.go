package gang

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
)

// odd makes nodes of odd sizes with adapters and relations, some of them without a rack, and uses some of them.
func odd(t *testing.T, random *rand.Rand, count int) (*alloc.Inventory, labels) {
	t.Helper()
	var nodes []alloc.Node
	var l labels
	for i := range count {
		n := alloc.Node{Name: fmt.Sprint("n", i), CPU: int64(8000 * (1 + random.IntN(12))), Memory: uint64(1+random.IntN(64)) * gib}
		model := random.IntN(2)
		for j := range random.IntN(9) {
			n.GPUs = append(n.GPUs, alloc.GPU{UUID: fmt.Sprintf("%d/%d", i, j), Index: j, Model: fmt.Sprint("m", model), Capacity: uint64(model+1)*10_000_000_019 + 7})
		}
		for range n.GPUs {
			row := make([]alloc.Relation, len(n.GPUs))
			for k := range row {
				row[k] = alloc.Relation(1 + (len(n.Near)/2+k/2)%2*5)
			}
			n.Near = append(n.Near, row)
		}
		for j := range random.IntN(3) {
			n.NICs = append(n.NICs, alloc.NIC{Name: fmt.Sprint("nic", j), Near: slices.Repeat([]alloc.Relation{alloc.RelationSwitch}, len(n.GPUs))})
		}
		nodes = append(nodes, n)
		labelled := map[string]string{"zone": fmt.Sprint("z", i%3)}
		if random.IntN(8) > 0 {
			labelled["rack"] = fmt.Sprint("r", i%6)
		}
		l = append(l, labelled)
	}
	inv := inventory(t, alloc.DefaultPolicy, nodes)
	for range 2 * count {
		p := oddPod(random)
		inv.ObservePod(&p)
		choices, err := inv.PodChoices(&p, nil)
		if err != nil {
			continue
		}
		if a, ok := choices.Next(); ok {
			if err := inv.Reserve(a); err != nil {
				t.Fatal(err)
			}
		}
	}
	return inv, l
}

func oddPod(random *rand.Rand) (p alloc.Pod) {
	p.CPU, p.HostMemory = int64(random.IntN(4)*2000), uint64(random.IntN(3))*gib
	for range random.IntN(3) {
		r := alloc.Request{Count: 1 + random.IntN(2), Memory: v1alpha1.Bytes(uint64(1+random.IntN(4)) * 2_500_000_003), Cores: random.IntN(3) * 30}
		switch random.IntN(8) {
		case 0:
			r.Memory, r.Cores, r.Whole = v1alpha1.Memory{}, 0, true
		case 1:
			r.Pair = alloc.RelationSwitches
		case 2:
			r.Near = alloc.RelationNVLink
		case 3:
			r.Models = "m1"
		case 4:
			r.Same = true
		}
		claim := []alloc.Request{r}
		if random.IntN(6) == 0 {
			claim = append(claim, alloc.Request{Count: 1, Memory: v1alpha1.Percent(50)})
		}
		p.Claims = append(p.Claims, claim)
	}
	return p
}

// oddGang draws a gang with members of up to three kinds, some bound to sets of nodes or kept from some, some placed already.
func oddGang(t *testing.T, random *rand.Rand, inv *alloc.Inventory) (g Gang, m []Member, placed []alloc.Assignment) {
	t.Helper()
	size := 1 + random.IntN(12)
	g = Gang{Namespace: "default", Name: "g", Size: size, Minimum: 1 + random.IntN(size), ShareGPUs: random.IntN(4) == 0}
	g.Topology = [][]Level{nil, {required("rack")}, {preferred("rack")}, {required("zone"), preferred("rack")}, {preferred("zone"), preferred("rack")}, {required("zone"), required("rack")}}[random.IntN(6)]
	among := &alloc.NodeSet{}
	for range inv.Len() {
		among.Add(random.IntN(inv.Len()))
	}
	var pods []alloc.Pod
	for range 1 + random.IntN(3) {
		pods = append(pods, oddPod(random))
	}
	for i := range size {
		member := Member{Key: fmt.Sprintf("default/p%02d", i), Pod: pods[random.IntN(len(pods))]}
		if random.IntN(4) == 0 {
			member.Among = among
		}
		if random.IntN(8) == 0 {
			member.Lets = func(node int) bool { return node%3 != i%3 }
		}
		if most := random.IntN(6); most > 0 && most < 3 {
			member.Alike, member.Beside = fmt.Sprint(most), func(node int, others []Neighbour) bool { return onNode(node, others) < most }
		}
		m = append(m, member)
	}
	if random.IntN(4) == 0 {
		choices, err := inv.PodChoices(&m[0].Pod, nil)
		if err != nil {
			return g, m, nil
		}
		if a, ok := choices.Next(); ok {
			if err := inv.Reserve(a); err != nil {
				t.Fatal(err)
			}
			m[0].Placed, placed = &a, append(placed, a)
		}
	}
	return g, m, placed
}

// onNode counts the members on a node.
func onNode(node int, all []Neighbour) (n int) {
	for _, other := range all {
		if other.Node == node {
			n++
		}
	}
	return n
}

// neighboursOf are the members that have places after a plan.
func neighboursOf(inv *alloc.Inventory, m []Member, plan Plan) (all []Neighbour) {
	for i := range m {
		if m[i].Placed != nil {
			at, _ := inv.Position(m[i].Placed.Name)
			all = append(all, Neighbour{m[i].Key, at})
		}
	}
	for _, p := range plan.Placements {
		all = append(all, Neighbour{p.Member.Key, p.Assignment.Node})
	}
	return all
}

// minded reports whether a node has a member that is there beside more than it lets: one of them was placed last, and was let.
func minded(all []Neighbour, plan Plan) bool {
	lets := map[int]bool{}
	for _, p := range plan.Placements {
		node := p.Assignment.Node
		others := slices.DeleteFunc(slices.Clone(all), func(n Neighbour) bool { return n.Key == p.Member.Key })
		lets[node] = lets[node] || p.Member.Beside == nil || p.Member.Beside(node, others)
	}
	return !slices.Contains(slices.Collect(maps.Values(lets)), false)
}

// Whatever gangs ask: all of the minimum or none, never more than there is, members on GPUs of their own and where they may
// be; see check.
func TestLawsOfPlans(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 1))
	plans, refusals, surplus := 0, 0, 0
	for range 60 {
		inv, l := odd(t, random, 6+random.IntN(14))
		for range 12 {
			g, m, placed := oddGang(t, random, inv)
			plan, refusal := place(t, inv, g, m, l)
			for _, p := range plan.Placements {
				if lets := p.Member.Lets; lets != nil && !lets(p.Assignment.Node) {
					t.Fatalf("%s is where it is not let", p.Member.Key)
				}
			}
			if refusal == nil && !minded(neighboursOf(inv, m, plan), plan) {
				t.Fatal("all members of a node are there beside more than they let")
			}
			if refusal != nil {
				refusals++
				if refusal.Fit > 0 && refusal.Fit >= refusal.Need {
					t.Fatalf("%+v", refusal)
				}
			} else {
				plans++
				surplus += len(plan.Left)
			}
			for _, a := range placed {
				inv.Unreserve(a)
			}
		}
	}
	if plans < 100 || refusals < 100 || surplus < 50 {
		t.Fatalf("%d plans, %d refusals and %d left", plans, refusals, surplus)
	}
}

// What the allocator decides after gangs were tried is what it decides without them.
func TestPlansLeaveNoTrace(t *testing.T) {
	history := func(tries bool) (decided []string) {
		random, other := rand.New(rand.NewPCG(5, 5)), rand.New(rand.NewPCG(6, 6))
		inv, l := odd(t, random, 18)
		var held []alloc.Assignment
		for i := range 150 {
			for range 2 {
				if tries {
					g, m, placed := oddGang(t, other, inv)
					_, _ = Place(inv, g, m, l)
					for _, a := range placed {
						inv.Unreserve(a)
					}
				}
			}
			if len(held) > 0 && random.IntN(2) == 0 {
				inv.Release(held[0])
				held = held[1:]
			}
			p := oddPod(random)
			inv.ObservePod(&p)
			choices, err := inv.PodChoices(&p, nil)
			if err != nil {
				continue
			}
			a, ok := choices.Next()
			decided = append(decided, fmt.Sprint(i, ok, a.Name, a.Shares))
			if ok {
				if err := inv.Reserve(a); err != nil {
					t.Fatal(err)
				}
				held = append(held, a)
			}
		}
		return decided
	}
	want, got := history(false), history(true)
	if len(want) < 100 || !slices.Equal(want, got) {
		for i := range want {
			if want[i] != got[i] {
				t.Fatalf("decision %d was %s, and with gangs tried %s", i, want[i], got[i])
			}
		}
		t.Fatalf("%d decisions", len(want))
	}
}

// Whether a gang fits does not depend on the order in which its members are told.
func TestOrderOfMembersIsIrrelevant(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 2))
	both := [2]int{}
	for range 40 {
		inv, l := odd(t, random, 6+random.IntN(10))
		for range 8 {
			g, m, placed := oddGang(t, random, inv)
			g.Minimum = g.Size
			for i := range m {
				m[i].Lets, m[i].Beside, m[i].Among = nil, nil, nil
				for j := range m[i].Pod.Claims {
					m[i].Pod.Claims[j] = m[i].Pod.Claims[j][:1]
				}
			}
			_, refusal := place(t, inv, g, m, l)
			random.Shuffle(len(m), func(i, j int) { m[i], m[j] = m[j], m[i] })
			_, again := place(t, inv, g, m, l)
			if (refusal == nil) != (again == nil) {
				t.Errorf("%d members: %v, and in another order %v", len(m), refusal, again)
			}
			if refusal == nil {
				both[0]++
			} else {
				both[1]++
			}
			for _, a := range placed {
				inv.Unreserve(a)
			}
		}
	}
	if both[0] < 50 || both[1] < 50 {
		t.Fatal(both)
	}
}

// Members of a gang are on MIG instances of different GPUs, unless they share GPUs.
func TestInstancesOfAGang(t *testing.T) {
	text, err := os.ReadFile("../../../testdata/mig/h100-80gb.txt")
	if err != nil {
		t.Fatal(err)
	}
	profiles, err := layouts.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	var nodes []alloc.Node
	for i := range 2 {
		n := alloc.Node{Name: fmt.Sprint("n", i), CPU: 64_000, Memory: 512 * gib}
		for j := range 2 {
			n.GPUs = append(n.GPUs, alloc.GPU{
				UUID: fmt.Sprintf("%d/%d", i, j), Index: j, Model: "H100", Capacity: 80 * gib,
				Profiles: profiles,
			})
		}
		nodes = append(nodes, n)
	}
	inv := inventory(t, alloc.DefaultPolicy, nodes)
	pod := podOf(alloc.Request{Count: 1, Profile: "1g.10gb"})
	l := labels{{"rack": "a"}, {"rack": "b"}}
	if _, refusal := place(t, inv, simple(2, required("rack")), members(2, pod), l); refusal != nil {
		t.Fatal(refusal)
	}
	if _, refusal := place(t, inv, simple(5), members(5, pod), l); refusal == nil || refusal.Fit != 4 {
		t.Fatal(refusal)
	}
	g := simple(28)
	g.ShareGPUs = true
	if _, refusal := place(t, inv, g, members(28, pod), l); refusal != nil {
		t.Fatal(refusal)
	}
}
