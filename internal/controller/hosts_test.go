package controller

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
)

// away is a cluster with a host g1 whose GPUs other nodes reach, at a time that the test says.
type awayCluster struct {
	*hosts
	t      *testing.T
	client *fake.Clientset
	clock  time.Time
}

func newAwayCluster(t *testing.T) *awayCluster {
	t.Helper()
	c := &awayCluster{t: t, clock: time.Unix(1000, 0)}
	c.client = fake.NewClientset(remoteOf("g1"))
	c.client.PrependReactor("update", "resourceslices", func(a clienttesting.Action) (bool, runtime.Object, error) {
		slice := a.(clienttesting.UpdateAction).GetObject().(*resourcev1.ResourceSlice).DeepCopy()
		return false, nil, c.slices().Update(slice)
	})
	k := newKnown(c.client, "")
	err := errors.Join(
		k.slices.Resource().V1().ResourceSlices().Informer().AddIndexers(cache.Indexers{byPool: poolIndex, byRemote: remoteSlices}),
		k.others.Resource().V1().ResourceClaims().Informer().AddIndexers(cache.Indexers{byRemote: remoteClaims}))
	if err != nil {
		t.Fatal(err)
	}
	c.hosts = newHosts(c.client, k, silent())
	c.now = func() time.Time { return c.clock }
	c.put(c.slices(), remoteOf("g1"))
	c.put(c.slices(), ownOf("g1"))
	c.node("g1", corev1.ConditionTrue)
	return c
}

func remoteOf(host string) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.RemoteSlice(host), UID: "r"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: v1alpha1.Driver, AllNodes: ptr.To(true), Pool: resourcev1.ResourcePool{Name: v1alpha1.RemotePool(host), Generation: 3, ResourceSliceCount: 1},
		Devices: []resourcev1.Device{{Name: "gpu-1-remote"}, {Name: "gpu-2-remote", Taints: []resourcev1.DeviceTaint{{Key: v1alpha1.UnhealthyTaint, Effect: resourcev1.DeviceTaintEffectNoSchedule}}}},
	}}
}

func ownOf(host string) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "own-" + host}, Spec: resourcev1.ResourceSliceSpec{Driver: v1alpha1.Driver, NodeName: &host, Pool: resourcev1.ResourcePool{Name: host}}}
}

func (c *awayCluster) slices() cache.Indexer {
	return c.known.slices.Resource().V1().ResourceSlices().Informer().GetIndexer()
}

func (c *awayCluster) put(into cache.Indexer, object any) {
	c.t.Helper()
	if err := into.Add(object); err != nil {
		c.t.Fatal(err)
	}
}

func (c *awayCluster) node(name string, ready corev1.ConditionStatus) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure}, {Type: corev1.NodeReady, Status: ready}}}}
	if _, err := lighten(node, ""); err != nil {
		c.t.Fatal(err)
	}
	c.put(c.known.others.Core().V1().Nodes().Informer().GetIndexer(), node)
}

func (c *awayCluster) drop(from cache.Indexer, object any) {
	c.t.Helper()
	if err := from.Delete(object); err != nil {
		c.t.Fatal(err)
	}
}

// claim has a GPU of the host, or nobody has one.
func (c *awayCluster) claim(pool string) {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a"}}
	if pool != "" {
		claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Driver: v1alpha1.Driver, Pool: pool, Device: "gpu-1-remote"}}}}
	}
	lightenClaim(claim)
	c.put(c.known.others.Resource().V1().ResourceClaims().Informer().GetIndexer(), claim)
}

// after looks after a time, and compares what is said then of all of the host's GPUs: a reason and an effect, "removed", or "".
func (c *awayCluster) after(lasts time.Duration, want string) {
	c.t.Helper()
	c.clock = c.clock.Add(lasts)
	c.look(c.t.Context())
	slice, err := c.client.ResourceV1().ResourceSlices().Get(c.t.Context(), v1alpha1.RemoteSlice("g1"), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if want != "removed" {
			c.t.Errorf("the slice is removed, want %q", want)
		}
		return
	}
	if err != nil {
		c.t.Fatal(err)
	}
	for i, d := range slice.Spec.Devices {
		got := ""
		for _, taint := range d.Taints {
			if taint.Key == v1alpha1.HostTaint {
				got += taint.Value + " " + string(taint.Effect)
			}
		}
		if got != want || i == 1 && d.Taints[0].Key != v1alpha1.UnhealthyTaint {
			c.t.Errorf("device %s has %v, want %q", d.Name, d.Taints, want)
		}
	}
}

func TestHostThatIsLost(t *testing.T) {
	c := newAwayCluster(t)
	c.after(time.Hour, "")
	c.node("g1", corev1.ConditionUnknown)
	c.after(time.Second, "not-ready NoSchedule")
	c.after(evictAfter-time.Second, "not-ready NoSchedule")
	c.after(time.Second, "not-ready NoExecute")
	c.after(24*time.Hour, "not-ready NoExecute")
	writes := len(c.client.Actions())
	c.look(t.Context())
	if n := len(c.client.Actions()); n != writes {
		t.Errorf("what is said already was written %d times", n-writes)
	}
	c.node("g1", corev1.ConditionTrue)
	c.after(time.Second, "")
	c.node("g1", corev1.ConditionFalse)
	c.after(evictAfter, "not-ready NoSchedule")
}

func TestHostThatIsGone(t *testing.T) {
	c := newAwayCluster(t)
	c.claim(v1alpha1.RemotePool("g1"))
	c.drop(c.known.others.Core().V1().Nodes().Informer().GetIndexer(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "g1"}})
	c.drop(c.slices(), ownOf("g1"))
	c.after(0, "gone NoSchedule")
	c.after(evictAfter, "gone NoExecute")
	c.after(removeAfter, "gone NoExecute")
	c.claim(v1alpha1.RemotePool("g2"))
	c.after(0, "removed")
	c.drop(c.slices(), remoteOf("g1"))
	c.after(0, "removed")
	if len(c.since) != 0 {
		t.Errorf("remembered: %v", c.since)
	}
}

// A host whose agent is away evicts nobody, because its shares go on, and goes when nobody has one.
func TestHostWithoutItsAgent(t *testing.T) {
	c := newAwayCluster(t)
	c.claim(v1alpha1.RemotePool("g1"))
	c.drop(c.slices(), ownOf("g1"))
	c.after(0, "no-agent NoSchedule")
	c.after(time.Hour, "no-agent NoSchedule")
	c.node("g1", corev1.ConditionUnknown) // its time begins now
	c.after(time.Second, "not-ready NoSchedule")
	c.after(evictAfter, "not-ready NoExecute")
	c.node("g1", corev1.ConditionTrue)
	c.claim("")
	c.after(0, "no-agent NoSchedule")
	c.after(removeAfter-time.Second, "no-agent NoSchedule")
	c.after(time.Second, "removed")
}

// Slices of nodes' own, and of other names than an agent gives them, are nobody's to change.
func TestHostsAreOnlyTheirs(t *testing.T) {
	c := newAwayCluster(t)
	other := remoteOf("g2")
	other.Name = "other"
	c.put(c.slices(), other)
	c.put(c.slices(), ownOf("g3"))
	if found, err := c.known.hosts(); err != nil || len(found) != 1 || found["g1"].slice == nil || found["g1"].held {
		t.Errorf("%v, %v", found, err)
	}
	c.look(t.Context())
	if n := len(c.client.Actions()); n != 0 {
		t.Errorf("%d writes about a host that is there", n)
	}
}

// Why a pod waits for a GPU that nodes reach is told of the hosts, whatever the nodes have that it may be on.
func TestExplainGPUsOfHosts(t *testing.T) {
	spec, err := pool.RemoteSpec(pool.Host{Node: "g1", Address: netip.MustParseAddrPort("10.0.0.7:7117")}, []pool.GPU{{
		UUID: "GPU-00000000-0000-4000-8000-000000000001", Model: "A100", Memory: 40 << 30, DriverVersion: "560.35.03", Form: pool.Remote,
	}})
	if err != nil {
		t.Fatal(err)
	}
	host := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.RemoteSlice("g1")}, Spec: *spec}
	all := append([]*resourcev1.DeviceClass{classOf(v1alpha1.ClassRemote, `device.driver == "divvy.dev" && device.attributes["divvy.dev"].form == "remote"`)}, classes...)
	far := func(memory string) *resourcev1.ResourceClaim {
		return claimOf(t, `requests: [{name: gpu, exactly: {deviceClassName: remote.divvy.dev, capacity: {requests: {memory: `+memory+`}}}}]`)
	}
	for name, c := range map[string]struct {
		published []*resourcev1.ResourceSlice
		claims    []*resourcev1.ResourceClaim
		want      string // in the text, "" for nothing to tell
	}{
		"no host":           {nodeOf(t, "n1", gib(80)), []*resourcev1.ResourceClaim{far("4Gi")}, "no host has GPUs that other nodes reach"},
		"it fits":           {[]*resourcev1.ResourceSlice{host}, []*resourcev1.ResourceClaim{far("4Gi")}, ""},
		"too large":         {append(nodeOf(t, "n1", gib(80)), host), []*resourcev1.ResourceClaim{far("50Gi")}, "the largest has 40Gi; 1 host has GPUs that other nodes reach"},
		"beside a near one": {append(nodeOf(t, "n1", gib(80)), host), []*resourcev1.ResourceClaim{far("4Gi"), claimOf(t, share("memory: 100Gi"))}, "the largest has 80Gi; 1 node has GPUs"},
		"a near one alone":  {[]*resourcev1.ResourceSlice{host}, []*resourcev1.ResourceClaim{claimOf(t, share("memory: 1Gi"))}, "no node has a GPU that Divvy knows"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(c.published, nil, all, named("n1", "n2"))
			text := cluster.explain(t.Context(), pending(t, ""), c.claims)
			if c.want == "" && text != "" || !strings.Contains(text, c.want) {
				t.Errorf("%q, want %q", text, c.want)
			}
		})
	}
}
