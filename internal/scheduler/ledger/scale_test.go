package ledger

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	dra "github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

const gpusPerNode = 8

// large is what a cluster of so many nodes is told of: their pools, and a claim for each GPU.
func large(t testing.TB, nodes int) (pools map[string][]*resourcev1.ResourceSlice, claims map[string]*resourcev1.ResourceClaim) {
	pools, claims = map[string][]*resourcev1.ResourceSlice{}, map[string]*resourcev1.ResourceClaim{}
	for i := range nodes {
		name := fmt.Sprint("node", i)
		pools[name] = slicesOf(t, name, gpusOf(i, gpusPerNode))
		for k := range gpusPerNode {
			claims[fmt.Sprintf("ns/%d-%d", i, k)] = share(i, k)
		}
	}
	return pools, claims
}

func share(node, gpu int) *resourcev1.ResourceClaim {
	return claimOf(result(fmt.Sprint("node", node), dra.Name(uuidOf(node, gpu), dra.Shared), "10Gi", "20", "1"))
}

// start makes the ledger of a cluster, as a scheduler does that begins.
func start(t testing.TB, pools map[string][]*resourcev1.ResourceSlice, claims map[string]*resourcev1.ResourceClaim) *Ledger {
	l := newLedger(t)
	for key, claim := range claims {
		l.SetClaim(key, claim)
	}
	for name, all := range pools {
		l.SetNode(name, machine("128", "1Ti"))
		l.SetPool(name, all)
	}
	l.Inventory()
	return l
}

// What an event allocates is the same in a small and in a large cluster.
func TestEventsCostTheSameInLargeClusters(t *testing.T) {
	cost := func(nodes int) (claims, hosts, served float64) {
		pools, all := large(t, nodes)
		l := start(t, pools, all)
		key, claim := "ns/new", share(0, 1)
		claims = testing.AllocsPerRun(20, func() {
			l.SetClaim(key, claim)
			l.Inventory()
			l.SetClaim(key, nil)
			l.Inventory()
		})
		use := int64(0)
		hosts = testing.AllocsPerRun(20, func() {
			use++
			l.SetHostUse("node1", use, 1<<30)
			l.Inventory()
		})
		expressions := []string{sharedForm, `device.attributes["divvy.dev"].model.matches("H100")`}
		served = testing.AllocsPerRun(20, func() { l.Serving(expressions) })
		return claims, hosts, served
	}
	claims, hosts, served := cost(10)
	claims2, hosts2, served2 := cost(300)
	if claims2 > claims+2 || hosts2 > hosts+2 || served2 > served+2 {
		t.Errorf("a claim's events take %v allocations among 10 nodes and %v among 300, a node's use %v and %v, a selector %v and %v",
			claims, claims2, hosts, hosts2, served, served2)
	}
}

// What is known of GPUs is not asked again when claims come, or when GPUs alike come.
func TestSelectorsAreAskedOnce(t *testing.T) {
	pools, claims := large(t, 20)
	l := start(t, pools, claims)
	expressions := []string{sharedForm, `device.attributes["divvy.dev"].exists(name, name == "numaNode")`}
	l.Serving(expressions)
	before := l.selectors.evaluated
	l.SetClaim("ns/new", share(0, 1))
	l.SetPool("node1", slicesOf(t, "node1", gpusOf(1, gpusPerNode)))
	l.SetPool("node20", slicesOf(t, "node20", gpusOf(20, gpusPerNode)))
	l.SetNode("node20", machine("128", "1Ti"))
	l.Serving(expressions)
	l.Serving(expressions[:1])
	if n := l.selectors.evaluated - before; n != gpusPerNode {
		t.Errorf("%d GPUs came, and that took %d evaluations", gpusPerNode, n)
	}
}

// What was said of a device is not said of another that comes in its stead.
func TestAnswersEndWithTheDevice(t *testing.T) {
	l := newLedger(t)
	for i := range 8 {
		gpus := gpusOf(i, 2)
		if i%2 == 1 {
			gpus[1].Location.Switch = "0000:01:00.0"
		}
		l.SetPool("a", slicesOf(t, "a", gpus))
		_, among := l.Serving([]string{`device.attributes["divvy.dev"].exists(name, name == "pcieSwitch")`})
		if among.Has(uuidOf(i, 1)) != (i%2 == 1) {
			t.Fatalf("after %d pools, %q has a switch", i, among)
		}
	}
	if len(l.sorts.devices) > 4 || len(l.sorts.pinned) != 2 {
		t.Errorf("of two devices there are %d numbers and %d UUIDs", len(l.sorts.devices), len(l.sorts.pinned))
	}
}

const benchNodes = 5000

// BenchmarkStart is the whole cluster, with a claim for each GPU.
func BenchmarkStart(b *testing.B) {
	pools, claims := large(b, benchNodes)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var l *Ledger
	for b.Loop() {
		l = start(b, pools, claims)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/benchNodes/gpusPerNode, "µs/GPU")
	runtime.KeepAlive(l)
}

func BenchmarkClaim(b *testing.B) {
	for _, nodes := range []int{100, benchNodes} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			l := start(b, first(large(b, nodes)), nil)
			for i := range nodes * gpusPerNode {
				l.SetClaim(fmt.Sprint("ns/", i), share(i/gpusPerNode, i%gpusPerNode))
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				claim := share(i%nodes, i%gpusPerNode)
				l.SetClaim("ns/new", claim)
				l.SetClaim("ns/new", nil)
			}
		})
	}
}

func first[A, B any](a A, _ B) A { return a }

// BenchmarkPlace is a decision with what the ledger does for it: selectors, Reserve, the claim, the node's use, the end.
func BenchmarkPlace(b *testing.B) {
	l := start(b, first(large(b, benchNodes)), nil)
	r := alloc.Request{Count: 1, Memory: v1alpha1.Bytes(10 * gib), Cores: 20, CPU: 1000}
	b.ReportAllocs()
	for b.Loop() {
		r.Classes, r.Among = l.Serving([]string{sharedForm})
		a, err := alloc.Search(l.Inventory(), r)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Reserve("ns/new", a); err != nil {
			b.Fatal(err)
		}
		l.SetHostUse(a.Name, 1000, 1<<30)
		l.SetClaim("ns/new", allocated(b, l, a))
		l.Inventory()
		l.SetHostUse(a.Name, 0, 0)
		l.SetClaim("ns/new", nil)
		l.Inventory()
	}
}

// BenchmarkCompare is a comparison with a rebuild, of 1,000 nodes with 20,000 claims: what the cycle copies, and the rest.
func BenchmarkCompare(b *testing.B) {
	const nodes, claims = 1000, 20000
	l := start(b, first(large(b, nodes)), nil)
	for i := range claims {
		l.SetClaim(fmt.Sprint("ns/", i), share(i%nodes, i/nodes%gpusPerNode))
	}
	l.Inventory()
	b.Run("copy", func(b *testing.B) {
		for b.Loop() {
			l.State()
		}
	})
	b.Run("rebuild", func(b *testing.B) {
		state := l.State()
		for b.Loop() {
			if count, first, err := state.Differences(policyOf(b)); count > 0 || err != nil {
				b.Fatal(count, first, err)
			}
		}
	})
}

// BenchmarkPool is a pool that is published anew with another taint.
func BenchmarkPool(b *testing.B) {
	l := start(b, first(large(b, benchNodes)), nil)
	gpus := gpusOf(3, gpusPerNode)
	well := slicesOf(b, "node3", gpus)
	gpus[2].Fault = &dra.Fault{Reason: "xid-79"}
	ill := slicesOf(b, "node3", gpus)
	b.ReportAllocs()
	for b.Loop() {
		l.SetPool("node3", ill)
		l.Inventory()
		l.SetPool("node3", well)
		l.Inventory()
	}
}

// BenchmarkSelector is an expression that was never asked for, and reads what differs from GPU to GPU.
func BenchmarkSelector(b *testing.B) {
	l := start(b, first(large(b, benchNodes)), nil)
	i := 0
	for b.Loop() {
		i++
		l.Serving([]string{sharedForm, fmt.Sprintf(`device.attributes["divvy.dev"].uuid == %q`, uuidOf(i, 3))})
	}
}

// Profiles are tried in this order, so that a request for amounts takes no larger instance than it needs.
func TestInstancesAreInOrder(t *testing.T) {
	m, l := hopper(t), newLedger(t)
	l.SetNode("a", machine("8", "64Gi"))
	gpus := gpusOf(0, 1)
	gpus[0] = divided(m, gpus[0], 0, true)
	l.SetPool("a", slicesOf(t, "a", gpus))
	var order []string
	for _, i := range l.Instances(nil) {
		order = append(order, i.Profile)
	}
	if want := []string{"1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"}; !slices.Equal(order, want) {
		t.Errorf("got %v, want %v", order, want)
	}
}
