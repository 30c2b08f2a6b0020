package webhook

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// The cluster that the server must bear: 1,000 nodes of 8 GPUs, on each of which 8 claims have a share.
const (
	manyNodes, gpusOfNode, sharesOfGPU = 1000, 8, 8
	manyClaims                         = manyNodes * gpusOfNode * sharesOfGPU
)

// mostPerClaim and mostPerNode are what the server may keep of a claim and of a node's slices, in bytes.
const mostPerClaim, mostPerNode = 256, 16 << 10

// mostPerReview is what a review may allocate, in bytes. What is kept is collected around it, so one in fifty reviews
// would be slow if they left a hundred KiB each.
const mostPerReview = 32 << 10

// fill tells the server of that cluster, object by object as a watch does, and returns how many bytes are kept of a
// claim and of a node. Every namespace has a hundred claims, and one in a hundred waits.
func (w *world) fill(t testing.TB) (perClaim, perNode int64) {
	t.Helper()
	node := objectOf[resourcev1.ResourceSlice](t, `{spec: {driver: divvy.dev}}`)
	for range gpusOfNode {
		node.Spec.Devices = append(node.Spec.Devices, *objectOf[resourcev1.Device](t, `{allowMultipleAllocations: true,
			attributes: {uuid: {}, index: {int: 0}, form: {string: shared}, model: {string: NVIDIA H100 80GB HBM3}, architecture: {string: hopper},
				driverVersion: {version: 580.95.5}, cudaVersion: {version: 13.0.0}, numaNode: {int: 0}},
			capacity: {memory: {value: 80Gi}, cores: {value: 100}, slots: {value: 64}}}`))
	}
	empty := live()
	for n := range manyNodes {
		slice := node.DeepCopy()
		slice.Name, slice.Spec.Pool.Name = fmt.Sprintf("node-%d-divvy.dev-x", n), fmt.Sprint("node-", n)
		for g := range slice.Spec.Devices {
			uuid := fmt.Sprintf("8dd5f44a-1b64-4d3a-9a4f-%06d%06d", n, g)
			slice.Spec.Devices[g].Name = "gpu-" + uuid + "-shared"
			slice.Spec.Devices[g].Attributes[v1alpha1.AttributeUUID] = resourcev1.DeviceAttribute{StringValue: ptr("GPU-" + uuid)}
		}
		if err := w.slices.Add(slice); err != nil {
			t.Fatal(err)
		}
	}
	withNodes := live()
	whole := objectOf[resourcev1.ResourceClaim](t, `{spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: share.divvy.dev, count: 1, capacity: {requests: {memory: 4Gi, cores: 10, slots: 1}}}}]}},
		status: {allocation: {devices: {results: [{request: gpu, driver: divvy.dev, consumedCapacity: {memory: 4Gi, cores: 10, slots: 1}}]}}}}`)
	for i := range manyClaims {
		claim := whole.DeepCopy()
		claim.Name, claim.Namespace = fmt.Sprintf("training-%d-gpu-x7k2p", i), fmt.Sprintf("team-%d", i/100)
		claim.UID = types.UID(fmt.Sprintf("6f1c3b52-9d6e-4f5a-8c11-%012d", i))
		if i%100 == 0 {
			claim.Status.Allocation = nil
		} else {
			share, result := types.UID(fmt.Sprint(i)), &claim.Status.Allocation.Devices.Results[0]
			result.ShareID, result.Pool = &share, fmt.Sprintf("node-%d", i/64)
			result.Device = fmt.Sprintf("gpu-8dd5f44a-1b64-4d3a-9a4f-%06d%06d-shared", i/64, i/8%8)
		}
		if err := w.claims.Add(claim); err != nil {
			t.Fatal(err)
		}
	}
	withClaims := live()
	return int64(withClaims-withNodes) / manyClaims, int64(withNodes-empty) / manyNodes
}

// live returns the bytes of what is still used.
func live() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// allocated returns how many bytes something allocates, on the average of some times.
func allocated(do func()) uint64 {
	const times = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		do()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / times
}

// TestScale bounds what the server keeps of a large cluster, and what a review looks at.
func TestScale(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	perClaim, perNode := w.fill(t)
	t.Logf("%d bytes a claim, %d a node", perClaim, perNode)
	if perClaim > mostPerClaim || perNode > mostPerNode {
		t.Errorf("%d bytes a claim, %d a node", perClaim, perNode)
	}
	accounts := w.judge.quotas.accounts
	review := func(namespace string) error {
		request := podRequest(t, asking)
		request.Namespace = namespace
		_, err := w.judge.mutatePod(context.Background(), request)
		return err
	}
	w.know(t, w.quotas, &corev1.ResourceQuota{}, `{metadata: {name: team, namespace: team-7}, spec: {hard: {requests.divvy.dev/gpu-memory: 402Gi}}}`)
	w.know(t, w.quotas, &corev1.ResourceQuota{}, `{metadata: {name: team, namespace: team-8}, spec: {hard: {cpu: 1}}}`)
	looked := func(what string, most int64, f func()) {
		t.Helper()
		before := accounts.looked.Load()
		if f(); accounts.looked.Load()-before > most {
			t.Errorf("%s: %d claims were looked at, want at most %d", what, accounts.looked.Load()-before, most)
		}
	}
	looked("the first review", 1, func() {
		if err := review("team-7"); err == nil || !strings.Contains(err.Error(), "400Gi are used") {
			t.Errorf("4Gi beside 400Gi: %v", err)
		}
	})
	looked("a hundred more", 0, func() {
		for range 100 {
			_ = review("team-7")
		}
	})
	request := podRequest(t, asking)
	if bytes := allocated(func() { _, _ = w.judge.mutatePod(context.Background(), request) }); bytes > mostPerReview {
		t.Errorf("a review leaves %d bytes to collect, want at most %d", bytes, mostPerReview)
	}
	w.know(t, w.slices, &resourcev1.ResourceSlice{}, `{metadata: {name: new}, spec: {driver: divvy.dev, pool: {name: new}, devices: [{name: new, capacity: {memory: {value: 141Gi}}}]}}`)
	looked("a review after another GPU came", 1, func() { _ = review("team-7") })

	// Nobody's lock stops a namespace whose quotas say nothing of GPUs, or which has none.
	accounts.mu.Lock()
	defer accounts.mu.Unlock()
	for _, namespace := range []string{"team-8", "team-9"} {
		if err := review(namespace); err != nil {
			t.Error(err)
		}
	}
}

// BenchmarkReview is a review of a pod in a namespace with a quota, beside 64,000 claims.
func BenchmarkReview(b *testing.B) {
	w := newWorld(b, "{plain: {}}")
	perClaim, perNode := w.fill(b)
	w.know(b, w.quotas, &corev1.ResourceQuota{}, `{metadata: {name: team, namespace: space}, spec: {hard: {requests.divvy.dev/gpu-memory: 1Ei}}}`)
	body, err := yaml.YAMLToJSON([]byte(asking))
	if err != nil {
		b.Fatal(err)
	}
	request := podRequest(b, asking)
	request.Object.Raw = body
	b.ReportMetric(float64(perClaim), "B/claim")
	b.ReportMetric(float64(perNode), "B/node")
	for b.Loop() {
		if _, err := w.judge.mutatePod(context.Background(), request); err != nil {
			b.Fatal(err)
		}
	}
}
