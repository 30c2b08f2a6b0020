package gang

import (
	"fmt"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

const gib = 1 << 30

// labels are those of nodes by position.
type labels []map[string]string

func (l labels) Label(position int, label string) (string, bool) {
	if position >= len(l) {
		return "", false
	}
	value, ok := l[position][label]
	return value, ok
}

// fleet makes nodes of 8 GPUs of 80 GiB, so many in each rack.
func fleet(t testing.TB, nodes, perRack int) (*alloc.Inventory, labels) {
	t.Helper()
	return fleetWith(t, alloc.DefaultPolicy, nodes, perRack)
}

func fleetWith(t testing.TB, policy string, nodes, perRack int) (*alloc.Inventory, labels) {
	t.Helper()
	var all []alloc.Node
	var l labels
	for i := range nodes {
		n := alloc.Node{Name: fmt.Sprintf("n%04d", i), CPU: 128_000, Memory: 1024 * gib}
		for j := range 8 {
			n.GPUs = append(n.GPUs, alloc.GPU{UUID: fmt.Sprintf("%s/%d", n.Name, j), Index: j, Model: "H100", Capacity: 80 * gib})
		}
		all = append(all, n)
		rack := i / perRack
		l = append(l, map[string]string{"rack": fmt.Sprint("r", rack), "zone": fmt.Sprint("z", rack/2), "host": n.Name})
	}
	return inventory(t, policy, all), l
}

func inventory(t testing.TB, name string, nodes []alloc.Node) *alloc.Inventory {
	t.Helper()
	policy, err := alloc.PolicyNamed(name)
	if err != nil {
		t.Fatal(err)
	}
	inv, err := alloc.NewInventory(nodes, policy)
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

func part(memory uint64, cores int) alloc.Request {
	return alloc.Request{Count: 1, Memory: v1alpha1.Bytes(memory), Cores: cores}
}

func whole(count int) alloc.Request { return alloc.Request{Count: count, Whole: true} }

func podOf(requests ...alloc.Request) (p alloc.Pod) {
	for _, r := range requests {
		p.Claims = append(p.Claims, []alloc.Request{r})
	}
	return p
}

func members(count int, pod alloc.Pod) (all []Member) {
	for i := range count {
		all = append(all, Member{Key: fmt.Sprintf("default/p%d-%03d", pod.CPU, i), Pod: pod})
	}
	return all
}

func simple(size int, levels ...Level) Gang {
	return Gang{Namespace: "default", Name: "g", Size: size, Minimum: size, Topology: levels}
}

// state is everything in use of an inventory.
func state(inv *alloc.Inventory) string {
	var text strings.Builder
	for node := range inv.Len() {
		n := inv.Node(node)
		fmt.Fprintf(&text, "%s %d %d %+v %+v\n", n.Name, n.CPUUsed, n.MemoryUsed, n.GPUs, n.NICs)
	}
	return text.String()
}

// place calls Place, checks the plan, and that the inventory is as it was.
func place(t testing.TB, inv *alloc.Inventory, g Gang, m []Member, nodes Nodes) (Plan, *Refusal) {
	t.Helper()
	before := state(inv)
	plan, refusal := Place(inv, g, m, nodes)
	if after := state(inv); after != before {
		t.Fatal("a trial left a trace")
	}
	check(t, inv, g, m, nodes, plan, refusal)
	return plan, refusal
}

// check holds a plan against the rules, by reserving all of it.
func check(t testing.TB, inv *alloc.Inventory, g Gang, m []Member, nodes Nodes, plan Plan, refusal *Refusal) {
	t.Helper()
	if refusal != nil {
		if len(plan.Placements)+len(plan.Left) > 0 || strings.Contains(refusal.Error(), "\n") || refusal.Error() == "" {
			t.Fatalf("a refusal with %d placements: %q", len(plan.Placements), refusal)
		}
		return
	}
	gpus, values, waiting := map[string]string{}, map[string]string{}, 0
	add := func(member Member, a alloc.Assignment) {
		for _, s := range a.Shares {
			if other, shared := gpus[s.UUID]; shared && other != member.Key && !g.ShareGPUs {
				t.Fatalf("%s and %s share GPU %s", other, member.Key, s.UUID)
			}
			gpus[s.UUID] = member.Key
		}
		for _, level := range g.Topology {
			value, ok := nodes.Label(a.Node, level.Label)
			if was, known := values[level.Label]; level.Required && len(plan.Placements) > 0 && (!ok || known && was != value) {
				t.Fatalf("members are in %s %q and %q", level.Label, was, value)
			}
			values[level.Label] = value
		}
	}
	held := 0
	for _, member := range m {
		if member.Placed == nil {
			waiting++
			continue
		}
		held++
		add(member, *member.Placed)
	}
	if len(plan.Placements)+len(plan.Left) != waiting || held+len(plan.Placements) < g.Minimum {
		t.Fatalf("%d placed and %d left of %d, with %d before and a minimum of %d", len(plan.Placements), len(plan.Left), waiting, held, g.Minimum)
	}
	seen := map[string]bool{}
	for _, p := range plan.Placements {
		if seen[p.Member.Key] || p.Member.Among != nil && !p.Member.Among.Has(p.Assignment.Node) {
			t.Fatalf("%s is placed twice or where it may not be", p.Member.Key)
		}
		seen[p.Member.Key] = true
		add(p.Member, p.Assignment)
		if err := inv.Reserve(p.Assignment); err != nil {
			t.Fatalf("the plan does not fit: %v", err)
		}
	}
	for _, p := range plan.Placements {
		inv.Unreserve(p.Assignment)
	}
}

func required(label string) Level { return Level{Label: label, Required: true} }

func preferred(label string) Level { return Level{Label: label} }

// racks counts members by a label.
func racks(plan Plan, nodes Nodes, label string) map[string]int {
	counts := map[string]int{}
	for _, p := range plan.Placements {
		value, _ := nodes.Label(p.Assignment.Node, label)
		counts[value]++
	}
	return counts
}

func TestAllOrNone(t *testing.T) {
	inv, l := fleet(t, 4, 2)
	if _, refusal := place(t, inv, simple(32), members(32, podOf(whole(1))), l); refusal != nil {
		t.Fatal(refusal)
	}
	_, refusal := place(t, inv, simple(33), members(33, podOf(whole(1))), l)
	if refusal == nil || refusal.Fit != 32 || !strings.Contains(refusal.Error(), "only 32 of 33 members fit together; for the next, none of 4 nodes fits") {
		t.Fatal(refusal)
	}
}

func TestMembersHaveDistinctGPUs(t *testing.T) {
	inv, l := fleet(t, 2, 1)
	g := simple(16)
	if _, refusal := place(t, inv, g, members(16, podOf(part(10*gib, 10))), l); refusal != nil {
		t.Fatal(refusal)
	}
	_, refusal := place(t, inv, simple(17), members(17, podOf(part(10*gib, 10))), l)
	if refusal == nil || refusal.Fit != 16 || !strings.Contains(refusal.Error(), "GPUs that other members have") {
		t.Fatal(refusal)
	}
	g = simple(160)
	g.ShareGPUs = true
	if _, refusal := place(t, inv, g, members(128, podOf(part(10*gib, 10))), l); refusal == nil {
		t.Fatal("members that are not there were placed")
	}
	g.Size, g.Minimum = 128, 128
	if _, refusal := place(t, inv, g, members(128, podOf(part(10*gib, 10))), l); refusal != nil {
		t.Fatal(refusal)
	}
}

func TestRequiredTopology(t *testing.T) {
	inv, l := fleet(t, 8, 2)
	plan, refusal := place(t, inv, simple(16, required("rack")), members(16, podOf(whole(1))), l)
	if refusal != nil || len(racks(plan, l, "rack")) != 1 {
		t.Fatal(refusal, racks(plan, l, "rack"))
	}
	_, refusal = place(t, inv, simple(17, required("rack")), members(17, podOf(whole(1))), l)
	if refusal == nil || refusal.Fit != 16 || refusal.Where != "rack=r0" || !strings.Contains(refusal.Error(), "in rack=r0; for the next, none of 2 nodes fits") {
		t.Fatal(refusal)
	}
	if _, refusal = place(t, inv, simple(17, required("zone"), preferred("rack")), members(17, podOf(whole(1))), l); refusal != nil {
		t.Fatal(refusal)
	}
	_, refusal = place(t, inv, simple(2, required("row")), members(2, podOf(whole(1))), l)
	if refusal == nil || refusal.Reason != alloc.ReasonNever {
		t.Fatal(refusal)
	}
}

func TestPreferredTopology(t *testing.T) {
	inv, l := fleet(t, 12, 2)
	for _, c := range []struct{ members, zones, racks int }{{16, 1, 1}, {17, 1, 2}, {32, 1, 2}, {33, 2, 3}, {96, 3, 6}} {
		plan, refusal := place(t, inv, simple(c.members, preferred("zone"), preferred("rack")), members(c.members, podOf(whole(1))), l)
		if refusal != nil {
			t.Fatal(refusal)
		}
		if zones, r := racks(plan, l, "zone"), racks(plan, l, "rack"); len(zones) != c.zones || len(r) != c.racks {
			t.Errorf("%d members are in %v and %v", c.members, zones, r)
		}
	}
}

func TestSurplus(t *testing.T) {
	inv, l := fleet(t, 4, 2)
	g := simple(40)
	g.Minimum = 8
	plan, refusal := place(t, inv, g, members(40, podOf(whole(1))), l)
	if refusal != nil || len(plan.Placements) != 32 || len(plan.Left) != 8 {
		t.Fatal(refusal, len(plan.Placements), len(plan.Left))
	}
}

// A member that comes instead of a lost one goes where the others are, and not onto their GPUs.
func TestReplacement(t *testing.T) {
	for _, level := range []Level{required("rack"), preferred("rack")} {
		inv, l := fleet(t, 8, 2)
		m := members(8, podOf(part(20*gib, 20)))
		plan, refusal := place(t, inv, simple(8, level), m, l)
		if refusal != nil {
			t.Fatal(refusal)
		}
		for i, p := range plan.Placements {
			if i != 3 {
				if err := inv.Reserve(p.Assignment); err != nil {
					t.Fatal(err)
				}
				m[i].Placed = &p.Assignment
			}
		}
		want := racks(plan, l, "rack")
		plan, refusal = place(t, inv, simple(8, level), m, l)
		if refusal != nil || len(plan.Placements) != 1 || want[l[plan.Placements[0].Assignment.Node]["rack"]] != 8 {
			t.Fatal(refusal, plan, want)
		}
	}
}

// Members that ask for much are placed although the policy spreads those before them over all nodes.
func TestOtherOrders(t *testing.T) {
	inv, l := fleetWith(t, "spread", 2, 1)
	m := members(4, podOf(whole(1)))
	m = append(m, Member{Key: "default/big", Pod: podOf(whole(8))})
	if _, refusal := place(t, inv, simple(5), m, l); refusal != nil {
		t.Fatal(refusal)
	}
}

// Two kinds of members fit only if those that ask for many processors leave one node to the others, which no order does.
func TestExactNumbers(t *testing.T) {
	var nodes []alloc.Node
	for i, cpu := range []int64{8_000, 32_000} {
		n := alloc.Node{Name: fmt.Sprint("n", i), CPU: cpu, Memory: 512 * gib}
		for j := range 4 {
			n.GPUs = append(n.GPUs, alloc.GPU{UUID: fmt.Sprintf("%d/%d", i, j), Index: j, Model: "H100", Capacity: 80 * gib})
		}
		nodes = append(nodes, n)
	}
	inv := inventory(t, alloc.DefaultPolicy, nodes)
	many, few := podOf(whole(1)), podOf(whole(1))
	many.CPU, few.CPU = 8000, 2000
	if _, refusal := place(t, inv, simple(8), append(members(4, many), members(4, few)...), labels{}); refusal != nil {
		t.Fatal(refusal)
	}
}

// What something else refuses is not planned.
func TestLets(t *testing.T) {
	inv, l := fleet(t, 4, 2)
	m := members(8, podOf(whole(1)))
	for i := range m {
		m[i].Lets = func(node int) bool { return node%2 == i%2 }
	}
	plan, refusal := place(t, inv, simple(8, required("rack")), m, l)
	if refusal != nil {
		t.Fatal(refusal)
	}
	for _, p := range plan.Placements {
		if !p.Member.Lets(p.Assignment.Node) {
			t.Errorf("%s is on node %d", p.Member.Key, p.Assignment.Node)
		}
	}
}

// Members that no node lets beside others are planned apart, in a rack with nodes enough. Those that are alike are not asked about
// one by one once there is no place left.
func TestBeside(t *testing.T) {
	inv, l := fleet(t, 8, 4)
	asked := 0
	alone := func(count int) []Member {
		m := members(count, podOf(whole(1)))
		for i := range m {
			m[i].Alike, m[i].Beside = "one", func(node int, others []Neighbour) bool { asked++; return onNode(node, others) == 0 }
		}
		return m
	}
	plan, refusal := place(t, inv, simple(4, required("rack")), alone(4), l)
	if refusal != nil {
		t.Fatal(refusal)
	}
	nodes := map[int]bool{}
	for _, p := range plan.Placements {
		nodes[p.Assignment.Node] = true
	}
	if len(nodes) != 4 {
		t.Errorf("four members are on %d nodes", len(nodes))
	}
	asked = 0
	if _, refusal := place(t, inv, simple(400), alone(400), l); refusal == nil || refusal.Fit != 8 || refusal.Next != nil {
		t.Errorf("%+v", refusal)
	}
	if asked > 1000 {
		t.Errorf("%d questions about 8 nodes", asked)
	}
}
