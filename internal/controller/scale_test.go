package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
)

// large is a cluster of so many nodes with eight GPUs of 80 GiB, full of shares of 10 GiB: eight on each GPU.
type large struct {
	slices []*resourcev1.ResourceSlice
	claims []*resourcev1.ResourceClaim
	nodes  []*corev1.Node
}

const gpusPerNode, sharesPerGPU = 8, 8

func newLarge(t testing.TB, nodes int) *large {
	t.Helper()
	l := &large{}
	var names []string
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		names = append(names, name)
		gpus := make([]pool.GPU, gpusPerNode)
		for i := range gpus {
			gpus[i] = gib(80)
		}
		l.slices = append(l.slices, nodeOf(t, name, gpus...)...)
		for gpu := range gpusPerNode {
			for share := range sharesPerGPU {
				l.claims = append(l.claims, shareOn(t, fmt.Sprintf("c-%d-%d-%d", i, gpu, share), name, gpu))
			}
		}
	}
	for i, slice := range l.slices {
		slice.Name = fmt.Sprintf("s%d", i)
	}
	l.nodes = named(names...)
	return l
}

// shareOn is a claim that has 10 GiB and 10 percent of a GPU.
func shareOn(t testing.TB, name, node string, gpu int) *resourcev1.ResourceClaim {
	t.Helper()
	claim := given(t, fmt.Sprintf("%s/%d 10Gi 10", node, gpu))
	claim.Namespace, claim.Name = "space", name
	return claim
}

func (l *large) cluster() *cluster {
	return newCluster(l.slices, l.claims, classes, l.nodes)
}

// asking is a claim for so much memory.
func asking(gib int) *resourcev1.ResourceClaim {
	claim := &resourcev1.ResourceClaim{}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: v1alpha1.ClassShare,
		Capacity: &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{
			v1alpha1.CapacityMemory: resource.MustParse(fmt.Sprintf("%dGi", gib)),
		}},
	}}}
	return claim
}

// TestWorkOfExplanations: what an explanation costs does not grow with the number of claims, selectors are evaluated once
// for each device, pods that ask for the same are explained once, and a change costs no more than itself.
func TestWorkOfExplanations(t *testing.T) {
	const nodes = 20
	c := newLarge(t, nodes).cluster()
	devices := 0
	for _, p := range c.pools {
		devices += len(p.devices)
	}
	work := func(gib int) (evaluated, looked int) {
		t.Helper()
		c.evaluated, c.looked = 0, 0
		text := c.explain(t.Context(), pending(t, ""), []*resourcev1.ResourceClaim{asking(gib)})
		if !strings.HasPrefix(text, fmt.Sprintf("no GPU has %dGi of memory free: the most is", gib)) {
			t.Fatalf("%d: %q", gib, text)
		}
		return c.evaluated, c.looked
	}
	if evaluated, looked := work(20); evaluated > devices || looked > 2*devices {
		t.Errorf("the first cost %d evaluations and %d looks at %d devices", evaluated, looked, devices)
	}
	if evaluated, looked := work(20); evaluated != 0 || looked != 0 {
		t.Errorf("the same again cost %d evaluations and %d looks", evaluated, looked)
	}
	if evaluated, looked := work(21); evaluated != 0 || looked > 2*devices {
		t.Errorf("another cost %d evaluations and %d looks", evaluated, looked)
	}
	c.setClaim("another", shareOn(t, "another", "n3", 3))
	if evaluated, looked := work(20); evaluated != 0 || looked == 0 {
		t.Errorf("after a claim it cost %d evaluations and %d looks", evaluated, looked)
	}
	// A node that is published again, with a taint, has no selector evaluated; one with another GPU has that of this.
	republished := nodeOf(t, "n5", gib(80), gib(80), gib(80), gib(80), gib(80), gib(80), gib(80), gib(40))
	for _, slice := range republished {
		slice.Spec.Pool.Generation++
		for i := range slice.Spec.Devices {
			slice.Spec.Devices[i].Taints = []resourcev1.DeviceTaint{{Key: "k", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
		}
	}
	c.setPool("n5", republished)
	if evaluated, _ := work(20); evaluated == 0 || evaluated > devices/nodes/gpusPerNode {
		t.Errorf("after a node was published again it cost %d evaluations", evaluated)
	}
	if n := c.numbers - len(c.vacant); n != devices {
		t.Errorf("%d numbers are in use for %d devices", n, devices)
	}
}

// TestClusterFollows: what the cluster knows after many changes is what one that is made anew knows.
func TestClusterFollows(t *testing.T) {
	l := newLarge(t, 3)
	c := l.cluster()
	free := func(c *cluster) (all []string) {
		for _, p := range c.byName() {
			for _, d := range p.devices {
				all = append(all, fmt.Sprintf("%s %v %d %v", d.spec.Name, d.free, d.taken, d.open(&way{})))
			}
		}
		return all
	}
	before := free(c)
	// Claims come before their pool and stay after it, lose what they have and get something else, and end twice.
	c.setPool("n1", nil)
	c.setClaim("late", given(t, "n1/2 1Gi 0"))
	c.setClaim("late", given(t, "n2/1 1Gi 0"))
	c.setClaim("late", given(t, "n9/1 1Gi 0"))
	c.setClaim("late", asking(1))
	c.setClaim("late", nil)
	c.setClaim("late", nil)
	c.setClaim("0", nil)
	c.setClaim("0", l.claims[0])
	c.setNode("n2", nil)
	c.setNode("n2", l.nodes[2])
	var again []*resourcev1.ResourceSlice
	for _, slice := range l.slices {
		if slice.Spec.Pool.Name == "n1" {
			again = append(again, slice)
		}
	}
	c.setPool("n1", again)
	if after := free(c); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Errorf("was\n%s\nis\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	if len(c.claims) != len(l.claims) || len(c.holders) != 3 {
		t.Errorf("%d claims of %d are known, on %d nodes", len(c.claims), len(l.claims), len(c.holders))
	}
}

// TestManySelectors: expressions that nobody asks with any more are forgotten.
func TestManySelectors(t *testing.T) {
	c := newCluster(nodeOf(t, "n1", gib(16)), nil, classes, named("n1"))
	for i := range 3 * mostSelectors {
		claim := asking(20)
		claim.Spec.Devices.Requests[0].Exactly.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
			Expression: fmt.Sprintf(`device.attributes["divvy.dev"].index >= %d - %d`, i, i),
		}}}
		if text := c.explain(t.Context(), pending(t, ""), []*resourcev1.ResourceClaim{claim}); text == "" {
			t.Fatal("it fits")
		}
	}
	if n := len(c.selectors); n > mostSelectors {
		t.Errorf("%d are remembered", n)
	}
}

// TestRefreshTakesInChanges: a controller that watches takes in what has changed, once.
func TestRefreshTakesInChanges(t *testing.T) {
	l := newLarge(t, 2)
	var objects []runtime.Object
	for _, class := range classes {
		objects = append(objects, class)
	}
	for _, node := range l.nodes {
		objects = append(objects, node)
	}
	for _, slice := range l.slices {
		objects = append(objects, slice)
	}
	for _, claim := range l.claims {
		objects = append(objects, claim)
	}
	client := fake.NewClientset(objects...)
	c := newController(client, v1alpha1.SchedulerName, "me", silent(), prometheus.NewRegistry())
	ctx, stop := context.WithCancel(t.Context())
	defer c.known.stop()
	defer stop()
	if err := c.known.start(ctx); err != nil {
		t.Fatal(err)
	}
	refreshed := func() {
		t.Helper()
		if err := c.known.refresh(c.cluster); err != nil {
			t.Fatal(err)
		}
	}
	followed(t, client)
	refreshed()
	d := c.cluster.pools["n1"].byName["gpu-n1-7-shared"]
	if len(c.cluster.claims) != len(l.claims) || len(c.cluster.pools) != 2 || len(c.cluster.nodes) != 2 || d == nil || d.free[memory] != 0 {
		t.Fatalf("%d claims, %d pools, %d nodes, %+v", len(c.cluster.claims), len(c.cluster.pools), len(c.cluster.nodes), d)
	}
	noted := func(what func(*stale) bool) {
		t.Helper()
		for {
			c.known.mu.Lock()
			ok := what(&c.known.stale)
			c.known.mu.Unlock()
			if ok {
				return
			}
			select {
			case <-c.known.changed:
			case <-t.Context().Done():
				t.Fatal("it is not told of")
			}
		}
	}
	gone := l.claims[len(l.claims)-1]
	if err := client.ResourceV1().ResourceClaims("space").Delete(ctx, gone.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	noted(func(s *stale) bool { return s.claims["space/"+gone.Name] })
	refreshed()
	if d.free[memory] != 10<<30 || len(c.known.stale.claims) != 0 {
		t.Errorf("%d are free, %v noted", d.free[memory], c.known.stale.claims)
	}
	if err := client.ResourceV1().ResourceSlices().Delete(ctx, l.slices[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	noted(func(s *stale) bool { return s.pools["n0"] })
}

// followed waits until all kinds that were listed are watched: of what is deleted in between a fake client never tells.
func followed(t *testing.T, client *fake.Clientset) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		waits := map[string]bool{}
		for _, action := range client.Actions() {
			switch action.GetVerb() {
			case "list":
				waits[action.GetResource().Resource] = true
			case "watch":
				delete(waits, action.GetResource().Resource)
			}
		}
		if len(waits) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%v are not watched", waits)
		}
	}
}

// BenchmarkExplain tells what a waiting pod costs in a cluster of 1,000 nodes with 8 GPUs and 64,000 claims: one that asks
// for what no other asks, after a change, and one that asks for the same as another.
func BenchmarkExplain(b *testing.B) {
	c := newLarge(b, 1000).cluster()
	pod := pending(b, "")
	c.explain(b.Context(), pod, []*resourcev1.ResourceClaim{asking(20)})
	b.Run("other", func(b *testing.B) {
		for b.Loop() {
			c.change()
			c.explain(b.Context(), pod, []*resourcev1.ResourceClaim{asking(20)})
		}
	})
	b.Run("two", func(b *testing.B) {
		for b.Loop() {
			c.change()
			c.explain(b.Context(), pod, []*resourcev1.ResourceClaim{asking(20), asking(30)})
		}
	})
	b.Run("same", func(b *testing.B) {
		for b.Loop() {
			c.explain(b.Context(), pod, []*resourcev1.ResourceClaim{asking(20)})
		}
	})
	b.Run("claim", func(b *testing.B) {
		claim := shareOn(b, "another", "n3", 3)
		for b.Loop() {
			c.setClaim("another", claim)
			c.setClaim("another", nil)
		}
	})
}
