package ledger

import (
	"errors"
	"fmt"
	"math/rand"
	"net/netip"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	dra "github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
)

const remoteForm = `device.driver == "divvy.dev" && device.attributes["divvy.dev"].form == "remote"`

// remoteOf is the pool of a host whose GPUs nodes reach through the network.
func remoteOf(t testing.TB, host string, number, count int) []*resourcev1.ResourceSlice {
	t.Helper()
	gpus := gpusOf(number, count)
	for i := range gpus {
		gpus[i].Form = dra.Remote
	}
	spec, err := dra.RemoteSpec(dra.Host{Node: host, Address: netip.MustParseAddrPort("10.0.0.7:7117")}, gpus)
	if err != nil {
		t.Fatal(err)
	}
	return []*resourcev1.ResourceSlice{{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.RemoteSlice(host)}, Spec: *spec}}
}

// GPUs of a pool are counted, and are no part of their host: the allocator, which puts a pod where its GPUs are, gives none of them.
func TestPoolOfAHost(t *testing.T) {
	l := newLedger(t)
	l.SetNode("g1", machine("8", "64Gi"))
	l.SetPool("g1", slicesOf(t, "g1", gpusOf(1, 1)))
	l.SetPool("remote/g1", remoteOf(t, "g1", 2, 2))
	if n := nodeNamed(t, l, "g1"); len(n.GPUs) != 1 {
		t.Errorf("node g1 has %d GPUs", len(n.GPUs))
	}
	if n := nodeNamed(t, l, "remote/g1"); len(n.GPUs) != 2 || n.GPUs[0].Capacity != 80*gib || n.CPU != 0 {
		t.Errorf("the pool has %+v", n)
	}
	for _, expressions := range [][]string{{remoteForm}, {`device.driver == "divvy.dev"`}, {fmt.Sprintf(`device.driver == "divvy.dev" && device.attributes["divvy.dev"].uuid == %q`, uuidOf(2, 0))}} {
		classes, among := l.Serving(expressions)
		for i := range 3 {
			a, err := alloc.Search(l.Inventory(), alloc.Request{Count: 1, Memory: v1alpha1.Bytes(gib), Classes: classes, Among: among})
			if err == nil && a.Name != "g1" {
				t.Errorf("%v: place %d is on %s", expressions, i, a.Name)
			}
		}
	}
	node, share, ok := l.Location("remote/g1", dra.Name(uuidOf(2, 1), dra.Remote))
	if !ok || node != "remote/g1" || share.UUID != uuidOf(2, 1) {
		t.Errorf("%s %+v %v", node, share, ok)
	}
	stray := slicesOf(t, "g2", gpusOf(3, 1))
	stray[0].Spec.Pool.Name = "remote/g2"
	l.SetPool("remote/g2", stray)
	if _, there := l.Inventory().Position("g2"); there {
		t.Error("a slice with a node's name is in a host's pool")
	}
	l.SetPool("remote/g1", nil)
	if _, there := l.Inventory().Position("remote/g1"); there {
		t.Error("the pool is gone, and is counted")
	}
	if n := nodeNamed(t, l, "g1"); len(n.GPUs) != 1 {
		t.Errorf("node g1 has %d GPUs", len(n.GPUs))
	}
}

// poolModel is what the claims of one GPU come to.
type poolModel struct {
	memory uint64
	cores  int
	slots  int
}

// TestPoolIsGivenOnce reserves, writes, takes back and forgets claims in a random order, while pools come and go: nothing is
// reserved beyond what a GPU has, sums are those of the claims, and a ledger that is made anew is the same.
func TestPoolIsGivenOnce(t *testing.T) {
	for seed := range 20 {
		random := rand.New(rand.NewSource(int64(seed)))
		l := newLedger(t)
		pools := map[string][]*resourcev1.ResourceSlice{"remote/g1": remoteOf(t, "g1", 1, 2), "remote/g2": remoteOf(t, "g2", 2, 1)}
		for name, all := range pools {
			l.SetPool(name, all)
		}
		written, flying := map[string]*resourcev1.ResourceClaim{}, map[string]*resourcev1.ResourceClaim{}
		refused := 0
		for step := range 400 {
			key := fmt.Sprintf("team/c%d", random.Intn(40))
			switch random.Intn(6) {
			case 0, 1, 2:
				refused += tryRemote(t, l, random, key, written, flying)
			case 3:
				if claim := flying[key]; claim != nil {
					l.SetClaim(key, claim)
					written[key] = claim
					delete(flying, key)
				}
			case 4:
				if flying[key] != nil {
					l.Unreserve(key)
					delete(flying, key)
				} else {
					l.SetClaim(key, nil)
					delete(written, key)
				}
			case 5:
				name := fmt.Sprintf("remote/g%d", 1+random.Intn(2))
				if len(flying) == 0 {
					l.SetPool(name, nil)
				}
				l.SetPool(name, pools[name])
			}
			checkRemote(t, l, fmt.Sprintf("seed %d, step %d", seed, step), written, flying)
		}
		if refused == 0 {
			t.Errorf("seed %d: nothing was refused, so the test says nothing", seed)
		}
		again, err := l.Rebuilt(policyOf(t))
		if err != nil {
			t.Fatal(err)
		}
		if differs := l.Difference(again); differs != "" {
			t.Errorf("seed %d: %s", seed, differs)
		}
	}
}

// tryRemote reserves a random part of a random GPU for a claim that has nothing, as what Kubernetes' allocator found. It returns 1
// if there was no room.
func tryRemote(t *testing.T, l *Ledger, random *rand.Rand, key string, written, flying map[string]*resourcev1.ResourceClaim) int {
	t.Helper()
	if written[key] != nil || flying[key] != nil {
		return 0
	}
	of := []struct{ pool, uuid string }{{"remote/g1", uuidOf(1, 0)}, {"remote/g1", uuidOf(1, 1)}, {"remote/g2", uuidOf(2, 0)}}[random.Intn(3)]
	found := claimOf(result(of.pool, dra.Name(of.uuid, dra.Remote), fmt.Sprintf("%dGi", 1+random.Intn(40)), fmt.Sprint(random.Intn(60)), "1"))
	share := types.UID("11111111-0000-4000-8000-000000000000")
	found.Status.Allocation.Devices.Results[0].ShareID = &share
	given, ok := demand.Adopt(&demand.Claim{Namespace: "team", Name: key, Allocation: found.Status.Allocation}, l)
	if !ok {
		t.Fatalf("%s is not read", key)
	}
	err := l.Reserve(key, given)
	switch {
	case err == nil:
		flying[key] = found
		return 0
	case errors.Is(err, ErrTaken):
		return 1
	}
	t.Fatal(err)
	return 0
}

// checkRemote compares what the ledger counts with the claims.
func checkRemote(t *testing.T, l *Ledger, when string, written, flying map[string]*resourcev1.ResourceClaim) {
	t.Helper()
	want := map[string]poolModel{}
	for _, claims := range []map[string]*resourcev1.ResourceClaim{written, flying} {
		for _, claim := range claims {
			r := &claim.Status.Allocation.Devices.Results[0]
			uuid, _, _ := dra.Parse(r.Device)
			memory, cores := r.ConsumedCapacity[v1alpha1.CapacityMemory], r.ConsumedCapacity[v1alpha1.CapacityCores]
			m := want[uuid]
			want[uuid] = poolModel{m.memory + uint64(memory.Value()), m.cores + int(cores.Value()), m.slots + 1}
		}
	}
	for _, name := range []string{"remote/g1", "remote/g2"} {
		for _, g := range nodeNamed(t, l, name).GPUs {
			if got := (poolModel{g.Granted, g.Cores, g.Tenants}); got != want[g.UUID] {
				t.Fatalf("%s: of %s are counted %+v, want %+v", when, g.UUID, got, want[g.UUID])
			}
			if g.Granted > g.Capacity || g.Cores > 100 {
				t.Fatalf("%s: of %s are given %d of %d bytes and %d cores", when, g.UUID, g.Granted, g.Capacity, g.Cores)
			}
		}
	}
}
