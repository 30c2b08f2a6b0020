package claimed

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/remote/server"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
	"github.com/divvy-gpu/divvy/internal/servefile"
)

const (
	first = "GPU-00000000-0000-4000-8000-000000000001"
	other = "GPU-00000000-0000-4000-8000-000000000002"
	uid   = "aaaaaaaa-0000-4000-8000-000000000001"
	named = "team/a/" + uid
)

// giver makes every share that is asked for, for the clients that it knows.
type giver struct {
	file  *servefile.File
	takes []wire.Take
	ended int
	fail  error
}

func (g *giver) Replace(f *servefile.File) { g.file = f }

func (g *giver) knows(who server.Client) error {
	if g.file == nil || g.file.Clients[who.Name].Name != who.Name {
		return errors.New("no such client")
	}
	return g.fail
}

func (g *giver) Inventory(_ context.Context, who server.Client) (*wire.Inventory, error) {
	return &wire.Inventory{Host: "container", Commands: true}, g.knows(who)
}

func (g *giver) Take(_ context.Context, who server.Client, take wire.Take, _ func(wire.Queued)) (server.Share, error) {
	if err := g.knows(who); err != nil {
		return nil, err
	}
	g.takes = append(g.takes, take)
	return given{g}, nil
}

func (g *giver) Command(context.Context, server.Client, wire.Take, wire.Command, *wire.Conn) error {
	return errors.New("a command ran")
}

type given struct{ giver *giver }

func (given) Granted() wire.Granted                  { return wire.Granted{Name: "one"} }
func (given) Dial(context.Context) (net.Conn, error) { return nil, errors.New("no worker") }
func (given) Ended() <-chan wire.Ended               { return nil }
func (given) Ending(context.Context) bool            { return false }
func (s given) End()                                 { s.giver.ended++ }
func whoOf(node, claim string) server.Client {
	return server.Client{Name: v1alpha1.RemoteClient(node, claim)}
}
func refusedText(err error) (text string, refused bool) {
	r := new(wire.Refused)
	if errors.As(err, &r) {
		return r.Text, true
	}
	return "", false
}

func result(host, uuid string, form pool.Form, memory, cores string) resourcev1.DeviceRequestAllocationResult {
	return resourcev1.DeviceRequestAllocationResult{
		Request: "r", Driver: v1alpha1.Driver, Pool: v1alpha1.RemotePool(host), Device: pool.Name(uuid, form),
		ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{v1alpha1.CapacityMemory: resource.MustParse(memory), v1alpha1.CapacityCores: resource.MustParse(cores)},
	}
}

func claimOf(results ...resourcev1.DeviceRequestAllocationResult) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a", UID: types.UID(uid)},
		Status:     resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: results}}},
	}
}

func takeOf(memory string, cores int, uuids ...string) wire.Take {
	bytes := resource.MustParse(memory)
	t := wire.Take{Claim: named, Wait: true, Request: v1alpha1.ShareRequest{Among: uuids, GPUs: len(uuids), Memory: v1alpha1.Bytes(uint64(bytes.Value())), Cores: cores}}
	t.Request.Backend = v1alpha1.BackendRemote
	return t
}

// A claim has what the scheduler gave it on this node, all its shares together, and what one gives back another may have.
func TestTakeWithinTheAllocation(t *testing.T) {
	g := &giver{}
	h := New("far", fake.NewClientset(claimOf(result("far", first, pool.Remote, "4Gi", "30"), result("far", other, pool.Remote, "2Gi", "0"), result("near", first, pool.Remote, "8Gi", "0"))), g)
	who := whoOf("n1", uid)
	if inventory, err := h.Inventory(t.Context(), who); err != nil || inventory.Host != "far" || inventory.Commands {
		t.Errorf("%+v, %v", inventory, err)
	}
	one, err := h.Take(t.Context(), who, takeOf("3Gi", 30, first), nil)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		take wire.Take
		want string
	}{
		"a byte more memory":             {takeOf("1025Mi", 0, first), "was given 4Gi of GPU " + first + ", and asks for 1025Mi while it has 3Gi"},
		"a core more":                    {takeOf("1Gi", 1, first), "was given 30 cores of GPU"},
		"another GPU's amount":           {takeOf("3Gi", 0, other), "was given 2Gi of GPU " + other},
		"GPUs of which one is too small": {takeOf("1Gi", 1, first, other), "cores of GPU"},
		"a GPU that it has not":          {takeOf("1Gi", 0, strings.Replace(first, "1", "9", 1)), "is not allocated to the claim"},
		"no GPU by name":                 {wire.Take{Claim: named, Request: v1alpha1.ShareRequest{GPUs: 1, Memory: v1alpha1.Bytes(1 << 30)}}, "names 0 GPUs"},
		"a GPU twice":                    {takeOf("1Gi", 0, other, other), "named twice"},
		"all of a GPU":                   {wire.Take{Claim: named, Request: v1alpha1.ShareRequest{Among: []string{other}}}, "was given 2Gi"},
		"more than there is":             {func() wire.Take { k := takeOf("1Gi", 0, other); k.Request.Overcommit = true; return k }(), "overcommits"},
	} {
		_, err := h.Take(t.Context(), who, c.take, nil)
		if text, ok := refusedText(err); !ok || !strings.Contains(text, c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
	if len(g.takes) != 1 || g.takes[0].Wait {
		t.Errorf("made are %+v", g.takes)
	}
	for range 2 {
		one.End() // ends twice where a server is told so twice
	}
	if _, err := h.Take(t.Context(), who, takeOf("4Gi", 30, first), nil); err != nil {
		t.Error(err)
	}
	if _, err := h.Take(t.Context(), who, takeOf("2Gi", 0, other), nil); err != nil {
		t.Error(err)
	}
}

func TestTakeOfOthers(t *testing.T) {
	g := &giver{}
	claim := claimOf(result("far", first, pool.Shared, "4Gi", "0"), result("near", first, pool.Remote, "4Gi", "0"))
	local := result("far", first, pool.Remote, "4Gi", "0")
	local.Pool = "far"
	claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, local)
	client := fake.NewClientset(claim)
	h := New("far", client, g)
	another := takeOf("1Gi", 0, first)
	another.Claim = "team/a/" + strings.Replace(uid, "a", "b", 1)
	gone := takeOf("1Gi", 0, first)
	gone.Claim = "team/gone/" + uid
	for what, c := range map[string]struct {
		who  server.Client
		take wire.Take
		want string
	}{
		"devices of other pools and forms": {whoOf("n1", uid), takeOf("1Gi", 0, first), "is not allocated to the claim"},
		"a certificate for another claim":  {whoOf("n1", uid), another, "and the certificate for the one with UID " + uid},
		"a claim that is gone":             {whoOf("n1", uid), gone, "there is no claim team/gone"},
		"a name of another kind":           {server.Client{Name: "laptop"}, takeOf("1Gi", 0, first), "serves no others"},
	} {
		_, err := h.Take(t.Context(), c.who, c.take, nil)
		if text, ok := refusedText(err); !ok || !strings.Contains(text, c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
	client.PrependReactor("get", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("the API server is away")
	})
	if _, err := h.Take(t.Context(), whoOf("n1", uid), takeOf("1Gi", 0, first), nil); err == nil || !strings.Contains(err.Error(), "is away") {
		t.Error(err)
	}
	if len(g.takes) > 0 {
		t.Errorf("made are %+v", g.takes)
	}
	if _, ok := refusedText(h.Command(t.Context(), whoOf("n1", uid), takeOf("1Gi", 0, first), wire.Command{}, nil)); !ok {
		t.Error("a command is not refused")
	}
}

// What could not be made counts no more, and claims that ask nothing any more are forgotten, unless they have a share.
func TestForgotten(t *testing.T) {
	g := &giver{}
	h := New("far", fake.NewClientset(claimOf(result("far", first, pool.Remote, "4Gi", "0"))), g)
	now := time.Now()
	h.now = func() time.Time { return now }
	g.fail = errors.New("the agent is away")
	if _, err := h.Take(t.Context(), whoOf("n1", uid), takeOf("4Gi", 0, first), nil); !errors.Is(err, g.fail) {
		t.Error(err)
	}
	g.fail = nil
	if _, err := h.Take(t.Context(), whoOf("n1", uid), takeOf("4Gi", 0, first), nil); err != nil {
		t.Fatal(err)
	}
	names := func() (all []string) {
		for name := range g.file.Clients {
			all = append(all, name)
		}
		slices.Sort(all)
		return all
	}
	for _, step := range []struct {
		after time.Duration
		claim string
		want  []string
	}{{0, "b", []string{"n1/" + uid, "n1/b"}}, {2 * idle, "c", []string{"n1/" + uid, "n1/c"}}} {
		now = now.Add(step.after)
		if _, err := h.Inventory(t.Context(), whoOf("n1", step.claim)); err != nil {
			t.Error(err)
		}
		if got := names(); !slices.Equal(got, step.want) {
			t.Errorf("known are %v, want %v", got, step.want)
		}
	}
}
