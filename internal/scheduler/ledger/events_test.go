package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	dra "github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// objects are what a cluster's API server has, and what its scheduler has reserved.
type objects struct {
	nodes  map[string]*corev1.Node
	use    map[string]int64
	pools  map[string][]*resourcev1.ResourceSlice
	claims map[string]*resourcev1.ResourceClaim
	flying map[string]alloc.Assignment
	fences map[gpuID]string
}

func newObjects() *objects {
	return &objects{
		nodes: map[string]*corev1.Node{}, use: map[string]int64{}, pools: map[string][]*resourcev1.ResourceSlice{},
		claims: map[string]*resourcev1.ResourceClaim{}, flying: map[string]alloc.Assignment{}, fences: map[gpuID]string{},
	}
}

// ledger tells a new ledger of everything, in a random order.
func (o *objects) ledger(t testing.TB, random *rand.Rand) *Ledger {
	t.Helper()
	l := newLedger(t)
	var events []func()
	for name, n := range o.nodes {
		events = append(events, func() { l.SetNode(name, n) })
	}
	for name, all := range o.pools {
		events = append(events, func() { l.SetPool(name, all) })
	}
	for key, claim := range o.claims {
		events = append(events, func() { l.SetClaim(key, claim) })
	}
	for id, reason := range o.fences {
		events = append(events, func() { l.Fence(id.node, id.uuid, reason) })
	}
	random.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	for i, event := range events {
		event()
		if random.IntN(8) == 0 && i > 0 {
			l.Inventory()
		}
	}
	for name, use := range o.use {
		l.SetHostUse(name, use, uint64(use)<<20)
	}
	return l
}

const (
	randomNodes = 4
	randomGPUs  = 3
)

// randomPool is a pool of a node in some state: complete or not, with GPUs of any form, tainted or missing.
func randomPool(t testing.TB, random *rand.Rand, at int) []*resourcev1.ResourceSlice {
	name := fmt.Sprint("node", at)
	gpus := gpusOf(at, 1+random.IntN(randomGPUs))
	for i := range gpus {
		switch random.IntN(8) {
		case 0:
			gpus[i].Fault = &dra.Fault{Reason: "xid-79", Lost: random.IntN(2) == 0}
		case 1:
			gpus[i].Form, gpus[i].Replicas = dra.MPS, 3
		case 2:
			gpus[i].Held = new(uint64)
		case 3, 4:
			gpus[i] = randomDivision(t, random, gpus[i])
		}
	}
	all := slicesOf(t, name, gpus)
	if random.IntN(8) == 0 {
		all[0].Spec.Pool.ResourceSliceCount++
	}
	return all
}

// randomClaim has some devices that may be there.
func randomClaim(random *rand.Rand, l *Ledger) *resourcev1.ResourceClaim {
	at := random.IntN(randomNodes)
	pool := fmt.Sprint("node", at)
	var results []resourcev1.DeviceRequestAllocationResult
	for range 1 + random.IntN(2) {
		device, shared := dra.Name(uuidOf(at, random.IntN(randomGPUs)), dra.Shared), true
		if p := l.pools[pool]; p != nil && len(p.devices) > 0 && random.IntN(4) > 0 {
			d := p.devices[random.IntN(len(p.devices))]
			device, shared = d.spec.Name, d.shared
		}
		if !shared {
			results = append(results, result(pool, device))
			continue
		}
		results = append(results, result(pool, device, fmt.Sprint(random.IntN(40), "Gi"), fmt.Sprint(random.IntN(60)), fmt.Sprint(random.IntN(3))))
	}
	claim := claimOf(results...)
	suspendAtRandom(random, claim)
	return claim
}

// Whatever comes in whatever order: the ledger is what one is that is told of the same objects, and what is counted are
// the claims' own sums.
func TestAnyOrderOfEventsIsOneLedger(t *testing.T) {
	for seed := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 7))
		o, l := newObjects(), newLedger(t)
		for step := range 250 {
			event := o.change(t, random, l)
			if random.IntN(3) > 0 {
				continue // several events come between looks
			}
			anew := o.ledger(t, random)
			for key := range o.flying {
				anew.flights[key] = l.flights[key]
				anew.inv.Adopt(l.flights[key].given)
				for _, id := range l.flights[key].devices {
					anew.count(id, 1)
				}
			}
			if text := l.Difference(anew); text != "" {
				t.Fatalf("seed %d, step %d, after %s: %s", seed, step, event, text)
			}
			rebuilt, err := l.Rebuilt(policyOf(t))
			if err != nil {
				t.Fatal(err)
			}
			if text := l.Difference(rebuilt); text != "" {
				t.Fatalf("seed %d, step %d, after %s: rebuilt: %s", seed, step, event, text)
			}
			o.compareSums(t, l)
		}
	}
}

// A comparison tells how many GPUs are counted otherwise, by the state that was copied, whatever the ledger does meanwhile.
func TestDifferencesAreCounted(t *testing.T) {
	pools, claims := large(t, 3)
	l := start(t, pools, claims)
	differ := func(s *State, want int, text string) {
		t.Helper()
		count, first, err := s.Differences(policyOf(t))
		if err != nil || count != want || !strings.Contains(first, text) {
			t.Errorf("%d differences, %q: %v; want %d and %q", count, first, err, want, text)
		}
	}
	before := l.State()
	differ(before, 0, "")
	for k := range 2 {
		l.inv.Adopt(alloc.Assignment{Node: -1, Name: "node1", Shares: []alloc.Share{{UUID: uuidOf(1, k), Limit: gib}}})
	}
	after := l.State()
	differ(before, 0, "")
	differ(after, 2, "node node1: a GPU is "+uuidOf(1, 0))
	l.SetNode("node1", nil)
	l.SetClaim("ns/2-2", nil)
	l.SetClasses(nil)
	differ(after, 2, "node node1")
	// A claim that is counted with other amounts is seen, though its sums are told by the same claim.
	l = start(t, pools, claims)
	l.claims["ns/0-0"].takings[0].memory--
	differ(l.State(), 1, "node node0: a GPU is "+uuidOf(0, 0))
}

// change lets something happen, and tells the ledger.
func (o *objects) change(t *testing.T, random *rand.Rand, l *Ledger) string {
	name := fmt.Sprint("node", random.IntN(randomNodes))
	key := fmt.Sprint("ns/", random.IntN(12))
	switch random.IntN(10) {
	case 0:
		o.nodes[name] = machine(fmt.Sprint(32+random.IntN(3)), "256Gi")
		l.SetNode(name, o.nodes[name])
		return "a change of " + name
	case 1:
		if random.IntN(3) == 0 {
			delete(o.nodes, name)
			delete(o.use, name)
			l.SetNode(name, nil)
		}
		return "the end of " + name
	case 2:
		if o.nodes[name] != nil {
			o.use[name] = int64(random.IntN(32000))
			l.SetHostUse(name, o.use[name], uint64(o.use[name])<<20)
		}
		return "the use of " + name
	case 3, 4:
		at := random.IntN(randomNodes)
		name := fmt.Sprint("node", at)
		o.pools[name] = randomPool(t, random, at)
		if random.IntN(6) == 0 {
			o.pools[name] = nil
		}
		l.SetPool(name, o.pools[name])
		return "the pool of " + name
	case 5:
		if o.flying[key].Name == "" {
			o.claims[key] = randomClaim(random, l)
			l.SetClaim(key, o.claims[key])
		}
		return "the allocation of " + key
	case 6:
		delete(o.claims, key)
		l.SetClaim(key, nil)
		return "the end of " + key
	case 7:
		if random.IntN(4) == 0 {
			id := gpuID{name, uuidOf(random.IntN(randomNodes), 0)}
			o.fences[id] = "it is looked at"
			if random.IntN(2) == 0 {
				delete(o.fences, id)
			}
			l.Fence(id.node, id.uuid, o.fences[id])
		}
		return "a fence"
	case 8:
		if l.Unreserve(key) {
			delete(o.flying, key)
		}
		return "Unreserve of " + key
	}
	return o.reserve(t, random, l, key)
}

// reserve places a claim; some are written at once.
func (o *objects) reserve(t *testing.T, random *rand.Rand, l *Ledger, key string) string {
	if o.claims[key] != nil || o.flying[key].Name != "" {
		return "nothing"
	}
	r := alloc.Request{Count: 1, Memory: v1alpha1.Bytes(uint64(random.IntN(40)+1) * gib), Cores: random.IntN(50)}
	switch random.IntN(4) {
	case 0:
		r = alloc.Request{Count: 1 + random.IntN(2), Whole: true}
	case 1:
		r = alloc.Request{Count: 1, Profile: []string{"1g.10gb", "3g.40gb", "2g.20gb"}[random.IntN(3)]}
	}
	a, err := alloc.Search(l.Inventory(), r)
	if err != nil || l.Reserve(key, a) != nil {
		return "no place for " + key
	}
	if random.IntN(2) == 0 {
		before := l.comparables()
		o.claims[key] = allocated(t, l, a)
		l.SetClaim(key, o.claims[key])
		if after := l.comparables(); !slices.Equal(before, after) {
			t.Fatalf("%+v was reserved, and the allocation is counted otherwise:\n%v\n%v", a, before, after)
		}
		return "the allocation of what was reserved for " + key
	}
	o.flying[key] = a
	return "Reserve of " + key
}

func (l *Ledger) comparables() (all []string) {
	inv := l.Inventory()
	for i := range inv.Len() {
		for _, g := range inv.Node(i).GPUs {
			all = append(all, standing(g, l.sorts.byNumber[g.Class].id))
		}
	}
	return all
}

// compareSums adds up what claims say of each GPU by the names of devices.
func (o *objects) compareSums(t *testing.T, l *Ledger) {
	t.Helper()
	type sums struct {
		memory, host   uint64
		cores, tenants int
	}
	want := map[gpuID]sums{}
	add := func(node, uuid string, memory uint64, cores, tenants int) {
		s := want[gpuID{node, uuid}]
		want[gpuID{node, uuid}] = sums{s.memory + memory, s.host, s.cores + cores, s.tenants + tenants}
	}
	for _, claim := range o.claims {
		for _, r := range claim.Status.Allocation.Devices.Results {
			uuid, form, _ := dra.Parse(r.Device)
			memory, cores, slots := r.ConsumedCapacity[v1alpha1.CapacityMemory], r.ConsumedCapacity[v1alpha1.CapacityCores], r.ConsumedCapacity[v1alpha1.CapacitySlots]
			if form == dra.Whole && l.pools[r.Pool] != nil && l.pools[r.Pool].byName[r.Device] != nil {
				add(r.Pool, uuid, 80*gib, 0, 1)
				continue
			}
			gpu, host := saidOf(claim)
			if gpu || form != dra.Shared {
				add(r.Pool, uuid, uint64(memory.Value()), int(cores.Value()), int(max(1, slots.Value())))
			}
			if host && form == dra.Shared {
				s := want[gpuID{r.Pool, uuid}]
				s.host += uint64(memory.Value())
				want[gpuID{r.Pool, uuid}] = s
			}
		}
	}
	for key := range o.flying {
		for _, s := range l.flights[key].given.Shares {
			add(l.flights[key].given.Name, s.UUID, s.Limit, s.Cores, 1)
		}
	}
	inv := l.Inventory()
	for i := range inv.Len() {
		n := inv.Node(i)
		for _, g := range n.GPUs {
			if got := (sums{g.Granted, g.SwapGranted, g.Cores, g.Tenants}); got != want[gpuID{n.Name, g.UUID}] {
				t.Fatalf("%s of %s: %+v is counted, and claims have %+v", g.UUID, n.Name, got, want[gpuID{n.Name, g.UUID}])
			}
		}
	}
}
