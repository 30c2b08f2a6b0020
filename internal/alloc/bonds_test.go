package alloc

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// randomPlaces are seldom any.
func randomPlaces(random *rand.Rand) Places {
	if random.IntN(4) > 0 {
		return 0
	}
	return []Places{PlaceNUMA, PlaceSwitch, PlaceNUMA | PlaceClique}[random.IntN(3)]
}

func randomBonds(random *rand.Rand, claims int) []Bond {
	if random.IntN(2) == 0 || claims == 0 {
		return nil
	}
	b := Bond{Claims: uint32(random.IntN(1 << claims)), Apart: random.IntN(2) == 0}
	if !b.Apart {
		b.Together = []Places{PlaceNUMA, PlaceClique, PlaceGPU}[random.IntN(3)]
	}
	return []Bond{b}
}

// bonded reports whether a claim may have a GPU beside what the pod has already.
func (p *Pod) bonded(n *Node, placed [][]int, claim, gpu int, together Places) bool {
	places := func(gpu int) [4]uint16 {
		at := n.GPUs[gpu].Location
		return [4]uint16{at.NUMA, at.Switch, at.Clique, uint16(gpu)}
	}
	same := func(a, b int, kinds Places) bool {
		for i, kind := range []Places{PlaceNUMA, PlaceSwitch, PlaceClique, PlaceGPU} {
			if kinds&kind != 0 && (places(a)[i] != places(b)[i] || places(a)[i] == 0 && kind != PlaceGPU) {
				return false
			}
		}
		return true
	}
	if !same(gpu, gpu, together) || slices.ContainsFunc(placed[claim], func(other int) bool { return !same(gpu, other, together) }) {
		return false
	}
	for _, b := range p.Bonds {
		for other := range placed {
			if other == claim || b.Claims>>claim&1 == 0 || b.Claims>>other&1 == 0 {
				continue
			}
			if b.Apart && slices.Contains(placed[other], gpu) || slices.ContainsFunc(placed[other], func(o int) bool { return !same(gpu, o, b.Together) }) {
				return false
			}
		}
	}
	return true
}

// placed is the node of eight with places: two NUMA nodes, four switches, and one clique of the first six.
func placed() Node {
	n := eight()
	for i := range n.GPUs {
		n.GPUs[i].Location = Location{NUMA: uint16(1 + i/4), Root: uint16(1 + i/4), Switch: uint16(1 + i/2)}
		if i < 6 {
			n.GPUs[i].Location.Clique = 1
		}
		for j := range n.GPUs {
			n.Near[i][j] = RelationNVLink
		}
	}
	return n
}

// GPUs that are linked are in one NUMA node only if they are.
func TestTogether(t *testing.T) {
	for _, test := range []struct {
		kinds Places
		most  int
	}{{0, 8}, {PlaceNUMA, 4}, {PlaceRoot, 4}, {PlaceSwitch, 2}, {PlaceClique, 6}, {PlaceClique | PlaceNUMA, 4}, {PlaceGPU, 1}} {
		for count := 1; count <= 8; count++ {
			inventory := newInventory(t, []Node{placed()}, DefaultPolicy)
			a, err := Search(inventory, Request{Count: count, Whole: true, Together: test.kinds})
			if (err == nil) != (count <= test.most) {
				t.Errorf("%d GPUs in places %b: %+v, %v", count, test.kinds, a, err)
			}
			if err != nil && !strings.Contains(err.Error(), "GPUs too far apart") {
				t.Errorf("%d GPUs in places %b: %v", count, test.kinds, err)
			}
			for _, s := range a.Shares {
				if n := placed(); !n.together(s.GPU, a.Shares[0].GPU, test.kinds) {
					t.Errorf("%d GPUs in places %b: %+v", count, test.kinds, a)
				}
			}
		}
	}
	inventory := newInventory(t, []Node{placed()}, DefaultPolicy)
	if a, err := Search(inventory, Request{Count: 1, Whole: true, Together: PlaceClique, Among: "g7"}); err == nil {
		t.Errorf("a GPU whose clique is not known: %+v", a)
	}
}

func TestBonds(t *testing.T) {
	whole := []Request{{Count: 1, Whole: true}}
	share := []Request{{Count: 1, Memory: bytes(gib)}}
	for text, test := range map[string]struct {
		pod  Pod
		does func(a []Share) bool
	}{
		"apart":             {Pod{Claims: [][]Request{share, share, share}, Bonds: []Bond{{Claims: 7, Apart: true}}}, func(a []Share) bool { return a[0].GPU != a[1].GPU && a[1].GPU != a[2].GPU }},
		"two of them apart": {Pod{Claims: [][]Request{share, share, share}, Bonds: []Bond{{Claims: 5, Apart: true}}}, func(a []Share) bool { return a[0].GPU != a[2].GPU && (a[1].GPU == a[0].GPU || a[1].GPU == a[2].GPU) }},
		"under one switch":  {Pod{Claims: [][]Request{whole, whole}, Bonds: []Bond{{Claims: 3, Together: PlaceSwitch}}}, func(a []Share) bool { return a[0].GPU/2 == a[1].GPU/2 }},
		"on one GPU":        {Pod{Claims: [][]Request{share, {{Count: 2, Memory: bytes(gib), Same: true}}}, Bonds: []Bond{{Claims: 3, Together: PlaceGPU}}}, func(a []Share) bool { return a[0].GPU == a[1].GPU && a[1].GPU == a[2].GPU }},
		"three under one":   {Pod{Claims: [][]Request{whole, whole, whole}, Bonds: []Bond{{Claims: 7, Together: PlaceSwitch}}}, nil},
		"a whole GPU twice": {Pod{Claims: [][]Request{whole, whole}, Bonds: []Bond{{Claims: 3, Together: PlaceGPU}}}, nil},
	} {
		choices, err := newInventory(t, []Node{placed()}, DefaultPolicy).PodChoices(&test.pod, nil)
		if err != nil {
			t.Fatal(err)
		}
		a, ok := choices.Next()
		if ok != (test.does != nil) || ok && !test.does(a.Shares) {
			t.Errorf("%s: %+v", text, a)
		}
	}
	inventory := newInventory(t, []Node{placed()}, DefaultPolicy)
	for _, p := range []Pod{
		{Claims: [][]Request{share, share}, Bonds: []Bond{{Claims: 4}}}, {Claims: [][]Request{share, share}, Bonds: []Bond{{Claims: 3, Together: 64}}},
		{Claims: [][]Request{{{Count: 1, Together: 32}}}}, {Claims: [][]Request{{{Count: 1, Cores: 1, ZeroCores: true}}}},
	} {
		if _, err := inventory.PodChoices(&p, nil); err == nil {
			t.Errorf("%+v contradicts itself", p)
		}
	}
}

// Who asks for no cores gets none, whatever others get by default.
func TestZeroCores(t *testing.T) {
	n := eight()
	for i := range n.GPUs {
		n.GPUs[i].DefaultCores = 60
	}
	inventory := newInventory(t, []Node{n}, DefaultPolicy)
	for _, test := range []struct {
		zero bool
		want int
	}{{false, 60}, {true, 0}} {
		r := Request{Count: 1, Memory: bytes(gib), ZeroCores: test.zero, Among: "g0"}
		a := search(t, inventory, r)
		if a.Shares[0].Cores != test.want {
			t.Errorf("zero %v: %+v", test.zero, a)
		}
		if err := inventory.Reserve(a); err != nil {
			t.Fatal(err)
		}
	}
}

// An alternative that fits nowhere takes no tries from those that do, however many places the claims before it have.
func TestTriesAreForAlternativesThatFit(t *testing.T) {
	p := Pod{Claims: [][]Request{
		{{Count: 2, Whole: true}}, {{Count: 1, Whole: true}},
		{{Count: 1, Memory: bytes(81 * gib)}, {Count: 1, Memory: bytes(82 * gib)}, {Count: 1, Memory: bytes(gib)}},
	}}
	choices, err := newInventory(t, []Node{eight()}, DefaultPolicy).PodChoices(&p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if a, ok := choices.Next(); !ok || a.Shares[3].Alternative != 2 {
		t.Errorf("it gets %+v", a)
	}
}
