package dra

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/agenttest"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/edits"
)

// network keeps shares of other hosts as relays do, in the memory of the test. It outlives agents.
type network struct {
	mu    sync.Mutex
	taken map[string]RemoteShare
	made  int
	away  error
	told  map[string]func(RemoteShare, string)
}

func newNetwork() *network {
	return &network{taken: map[string]RemoteShare{}, told: map[string]func(RemoteShare, string){}}
}

// Take implements [Remotes].
func (n *network) Take(_ context.Context, want RemoteShare) (edits.Edits, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.away != nil {
		return edits.Edits{}, n.away
	}
	if had, ok := n.taken[want.Key]; !ok {
		n.taken[want.Key] = want
		n.made++
	} else if !reflect.DeepEqual(had.Request, want.Request) {
		return edits.Edits{}, errors.New("it has another share")
	}
	return edits.Edits{Mounts: []edits.Mount{{Source: "/run/divvy/remote/" + want.Key, Target: edits.ShareDir, Options: edits.ReadOnly}}}, nil
}

// End implements [Remotes].
func (n *network) End(ctx context.Context, claim types.UID) error {
	if _, bounded := ctx.Deadline(); ctx.Err() != nil || !bounded {
		return errors.New("whoever asks has gone, or waits for ever")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, s := range n.taken {
		if s.Claim == claim {
			delete(n.taken, key)
		}
	}
	return nil
}

// Follow implements [Remotes].
func (n *network) Follow(shares []RemoteShare, told func(RemoteShare, string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range shares {
		n.told[s.Key] = told
	}
}

func (n *network) shares() []RemoteShare {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []RemoteShare
	for _, key := range sortedKeys(n.taken) {
		all = append(all, n.taken[key])
	}
	return all
}

// remoteResult is a share of a GPU of another host.
func remoteResult(request, host, uuid, memory, cores string) resourcev1.DeviceRequestAllocationResult {
	r := result(request, uuid, memory, cores)
	r.Pool, r.Device = v1alpha1.RemotePool(host), pool.Name(uuid, pool.Remote)
	return r
}

// reaching is a machine whose agents reach other hosts.
func reaching(t *testing.T, claim *resourcev1.ResourceClaim, pod *corev1.Pod) (*machine, *network) {
	t.Helper()
	m, n := newMachine(t, claim, pod), newNetwork()
	m.remotes = n
	return m, n
}

// nothingRemote fails unless nothing is left of a claim.
func (m *machine) nothingRemote(r *running, n *network) {
	m.t.Helper()
	m.mustBeEmpty(r)
	if left := n.shares(); len(left) > 0 || len(r.remote.list()) > 0 {
		m.t.Errorf("%+v are taken, and recorded are %+v", left, r.remote.list())
	}
}

// oneRemote is claim a with a share of another host, used by one pod.
func oneRemote() (*resourcev1.ResourceClaim, *corev1.Pod) {
	pod := podOf("p", map[string][]ref{"main": {{"a", ""}}})
	claim := claimWith(remoteResult("r", "far", firstID, "4Gi", "30"))
	reserve(claim, pod)
	return claim, pod
}

// A share on another host takes nothing of this node's ledger. Its container gets the folder of its relay, and no device.
func TestRemoteShare(t *testing.T) {
	claim, pod := oneRemote()
	m, n := reaching(t, claim, pod)
	r := m.start()
	devices := m.mustPrepare(r, claim)
	if again := m.mustPrepare(r, claim); !reflect.DeepEqual(again, devices) || n.made != 1 {
		t.Errorf("prepared twice: %+v, then %+v, and %d shares are taken", devices, again, n.made)
	}
	if d := devices[0]; len(devices) != 1 || d.PoolName != "remote/far" || !slices.Equal(d.CDIDeviceIDs, []string{"divvy.dev/remote=" + string(uidA)}) || d.ShareID == nil {
		t.Errorf("the kubelet is told %+v", devices)
	}
	want := RemoteShare{
		Key: string(uidA), Name: "team/a", Claim: uidA, Namespace: "team", ClaimName: "a", Pods: []string{"p"}, Host: "far",
		Request: v1alpha1.ShareRequest{
			GPUs: 1, Among: []string{firstID}, Memory: v1alpha1.Bytes(4 * gib), Cores: 30,
			ShareConfig: v1alpha1.ShareConfig{Policy: v1alpha1.PolicyFixed, Weight: 1, Class: v1alpha1.ClassOnline, Backend: v1alpha1.BackendRemote},
		},
	}
	if got := n.shares(); len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("taken is %+v, want %+v", got, want)
	}
	if first, other := m.held(r); first+other != 0 {
		t.Errorf("the ledger of the node has %d and %d bytes", first, other)
	}
	spec, err := os.ReadFile(filepath.Join(m.cdiDir, "remote.divvy.dev-"+string(uidA)+".json"))
	if err != nil || !strings.Contains(string(spec), "/run/divvy/remote/") || strings.Contains(string(spec), "deviceNodes") {
		t.Errorf("%s, %v", spec, err)
	}
	n.away = errors.New("the host is away") // which keeps nobody from giving back
	for range 2 {
		if err := m.unprepare(r, claim); err != nil {
			t.Error(err)
		}
	}
	m.nothingRemote(r, n)
}

func TestRemoteRefused(t *testing.T) {
	beside := claimWith(result("q", firstID, "1Gi", "0"))
	beside.Name, beside.UID = "b", uidB
	one := func(results ...resourcev1.DeviceRequestAllocationResult) []resourcev1.DeviceRequestAllocationResult {
		return results
	}
	far := remoteResult("r", "far", firstID, "4Gi", "30")
	for name, c := range map[string]struct {
		results []resourcev1.DeviceRequestAllocationResult
		configs []resourcev1.DeviceAllocationConfiguration
		refs    []ref
		arrange func(*machine, *network)
		fault   string
	}{
		"a host that is away": {results: one(far), arrange: func(_ *machine, n *network) { n.away = errors.New("nobody listens at 10.0.0.2:7117") },
			fault: "take a share of far: nobody listens at 10.0.0.2:7117"},
		"an agent that reaches none": {results: one(far), arrange: func(m *machine, _ *network) { m.remotes = nil }, fault: "the agent of node n1 reaches none"},
		"an old runtime":             {results: one(far), arrange: func(m *machine, _ *network) { m.runtime("containerd://1.7.20") }, fault: "containerd 1.7.20 would silently start"},
		"two hosts":                  {results: one(far, remoteResult("s", "near", otherID, "4Gi", "30")), fault: "GPUs of two hosts, far and near"},
		"one GPU twice":              {results: one(far, remoteResult("s", "far", firstID, "4Gi", "30")), fault: "two shares of GPU " + firstID},
		"unlike shares":              {results: one(far, remoteResult("s", "far", otherID, "4Gi", "20")), fault: "ask for the same"},
		"a GPU of the node beside":   {results: one(far, result("s", otherID, "4Gi", "30")), fault: "a GPU of its node and one of another host"},
		"a claim of the node beside": {results: one(far), refs: []ref{{"a", ""}, {"b", ""}}, fault: "put both requests in one claim"},
		"another backend": {results: one(far), configs: []resourcev1.DeviceAllocationConfiguration{configured(fromClaim, `,"backend":"slice"`)},
			fault: "whose shares have backend remote"},
		"another driver's form": {results: one(func() resourcev1.DeviceRequestAllocationResult {
			r := far
			r.Device = pool.Name(firstID, pool.Shared)
			return r
		}()), fault: "is not one that other nodes reach"},
	} {
		t.Run(name, func(t *testing.T) {
			refs := c.refs
			if refs == nil {
				refs = []ref{{"a", ""}}
			}
			pod := podOf("p", map[string][]ref{"main": refs})
			claim := withConfig(claimWith(c.results...), c.configs...)
			reserve(claim, pod)
			m, n := newMachine(t, claim, beside, pod), newNetwork()
			m.remotes = n
			if c.arrange != nil {
				c.arrange(m, n)
			}
			r := m.start()
			result := m.prepare(r, claim)
			if result.Err == nil || !strings.Contains(result.Err.Error(), c.fault) {
				t.Fatalf("%v, want %q", result.Err, c.fault)
			}
			if text := <-m.events.Events; !strings.Contains(text, "Warning PrepareFailed") || !strings.Contains(text, c.fault) {
				t.Errorf("event %q", text)
			}
			if err := m.unprepare(r, claim); err != nil {
				t.Error(err)
			}
			m.nothingRemote(r, n)
		})
	}
}

// Each container has a share of its own, by its requests.
func TestRemoteContainers(t *testing.T) {
	pod := podOf("p", map[string][]ref{"left": {{"a", "q"}}, "right": {{"a", "r"}}})
	claim := claimWith(remoteResult("q", "far", firstID, "4Gi", "30"), remoteResult("r", "near", otherID, "2Gi", "0"))
	reserve(claim, pod)
	m, n := reaching(t, claim, pod)
	r := m.start()
	devices := m.mustPrepare(r, claim)
	if got := n.shares(); len(got) != 2 || got[0].Host != "far" || got[1].Host != "near" || got[1].Key != string(uidA)+"/r" || got[1].Name != "team/a/r" {
		t.Errorf("taken are %+v", got)
	}
	if len(devices) != 2 || devices[0].CDIDeviceIDs[0] == devices[1].CDIDeviceIDs[0] || devices[1].PoolName != "remote/near" {
		t.Errorf("the kubelet is told %+v", devices)
	}
	if err := m.unprepare(r, claim); err != nil {
		t.Error(err)
	}
	m.nothingRemote(r, n)
}

// Whatever an agent had done when it died, the next one takes no second share, and gives back what there is.
func TestRemoteOutlivesAgents(t *testing.T) {
	for _, step := range []string{"remote-recorded", "remote-taken", "remote-spec"} {
		for _, then := range []string{"prepare", "unprepare", "lose"} {
			t.Run(step+" "+then, func(t *testing.T) {
				claim, pod := oneRemote()
				m, n := reaching(t, claim, pod)
				m.step = agenttest.CrashAt(step, 1)
				r := m.start()
				if !agenttest.Crashes(step, func() { m.prepare(r, claim) }) {
					t.Fatal("the agent lives")
				}
				r.stop()
				m.step = nil
				if then == "lose" {
					if err := os.Remove(filepath.Join(m.dir, "remote-claims.json")); err != nil {
						t.Fatal(err)
					}
				}
				r = m.start()
				newReconciler(r.driver).remoteSpecifications(t.Context())
				if then == "prepare" {
					m.mustPrepare(r, claim)
					if n.made != 1 || len(n.shares()) != 1 {
						t.Errorf("%d shares were taken, there are %+v", n.made, n.shares())
					}
				}
				if err := m.unprepare(r, claim); err != nil {
					t.Error(err)
				}
				m.nothingRemote(r, n)
			})
		}
	}
}

// The pods of a share that has ended are told, also by an agent that came after it was taken. Those of one that was given back are not.
func TestRemoteShareEnds(t *testing.T) {
	claim, pod := oneRemote()
	m, n := reaching(t, claim, pod)
	r := m.start()
	m.mustPrepare(r, claim)
	r.stop()
	r = m.start()
	r.pods = noPods{} // a pod may have ended by the time that it is told
	clear(n.told)
	newReconciler(r.driver).remoteSpecifications(t.Context())
	share := n.shares()[0]
	n.told[share.Key](share, "far has been silent for more than 11s")
	text := <-m.events.Events
	for _, want := range []string{"Warning RemoteShareEnded", "team/a on host far", "silent for more than 11s", "CUDA_ERROR_DEVICE_UNAVAILABLE"} {
		if !strings.Contains(text, want) {
			t.Errorf("event %q lacks %q", text, want)
		}
	}
	if err := m.unprepare(r, claim); err != nil {
		t.Error(err)
	}
	n.told[share.Key](share, "its claim has gone")
	if len(m.events.Events) > 0 {
		t.Errorf("event %q after the end", <-m.events.Events)
	}
}
