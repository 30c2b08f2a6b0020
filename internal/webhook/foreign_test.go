package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// admit has a pod reviewed, and then the claim that Kubernetes makes for it. It returns the first refusal.
func (w *world) admit(t *testing.T, uid, pod, claim string) error {
	t.Helper()
	if _, err := w.judge.mutatePod(context.Background(), podRequest(t, pod)); err != nil {
		return err
	}
	_, err := w.judge.validateClaim(context.Background(), claimRequest(t, "{metadata: {name: c"+uid+", uid: "+uid+"}, spec: {devices: {requests: ["+claim+"]}}}"))
	return err
}

// TestForeignQuotaOfPods creates five pods, of which a quota written for another system allows one.
func TestForeignQuotaOfPods(t *testing.T) {
	for _, c := range []struct{ dialects, hard, limits, claim string }{
		{"{nvidia: {}}", "requests.nvidia.com/gpu: 1", "nvidia.com/gpu: 1", "{name: gpu, exactly: {deviceClassName: gpu.divvy.dev}}"},
		{"{hami: {}}", "limits.nvidia.com/gpumem: 4096", "nvidia.com/gpumem: 4096", "{name: gpu, exactly: {deviceClassName: share.divvy.dev, capacity: {requests: {memory: 4Gi}}}}"},
	} {
		w := newWorld(t, c.dialects)
		w.know(t, w.quotas, &corev1.ResourceQuota{}, `{metadata: {name: team, namespace: space}, spec: {hard: {`+c.hard+`}}}`)
		passed := 0
		for i := range 5 {
			err := w.admit(t, fmt.Sprint("u", i), "{spec: {containers: [{name: a, resources: {limits: {"+c.limits+"}}}]}}", c.claim)
			switch {
			case err == nil:
				passed++
			case !errors.Is(err, dialect.ErrRefused) || !strings.Contains(err.Error(), `quota "team"`):
				t.Fatal(err)
			}
		}
		if passed != 1 {
			t.Errorf("%s: %d of 5 pods passed a quota of %s", c.dialects, passed, c.hard)
		}
	}
}

// mayTake returns whether a pod of the namespace space may take so much memory.
func (w *world) mayTake(t *testing.T, memory string) error {
	t.Helper()
	_, err := w.judge.mutatePod(context.Background(), dryRun(podRequest(t, strings.Replace(asking, "4Gi", memory, 1))))
	return err
}

// objectOf reads an object.
func objectOf[T any](t testing.TB, text string) *T {
	t.Helper()
	into := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return into
}

// heldWhole is a whole GPU that an agent of an earlier version published as a device of its own, so that the claim does
// not say how much memory it is.
const heldWhole = `{metadata: {name: held, namespace: space, uid: u0}, spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.divvy.dev}}]}},
	status: {allocation: {devices: {results: [{request: gpu, driver: divvy.dev, pool: n1, device: gpu-0}]}}}}`

// TestHeldWhileSlicesAreAway has slices vanish, as they do when an agent or a node starts anew.
func TestHeldWhileSlicesAreAway(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	w.know(t, w.quotas, &corev1.ResourceQuota{}, `{metadata: {name: team, namespace: space}, spec: {hard: {requests.divvy.dev/gpu-memory: 20Gi}}}`)
	w.know(t, w.slices, &resourcev1.ResourceSlice{}, `{metadata: {name: other}, spec: {driver: divvy.dev, pool: {name: n2}, devices: [{name: gpu-9, capacity: {memory: {value: 18Gi}}}]}}`)
	held := objectOf[resourcev1.ResourceClaim](t, heldWhole)
	if err := w.claims.Add(held); err != nil {
		t.Fatal(err)
	}
	all := func(moment string) {
		t.Helper()
		if err := w.mayTake(t, "4Gi"); err != nil {
			t.Errorf("%s: 4Gi beside 16Gi: %v", moment, err)
		}
		if err := w.mayTake(t, "5Gi"); err == nil || !strings.Contains(err.Error(), "16Gi are used") {
			t.Errorf("%s: 5Gi beside 16Gi: %v", moment, err)
		}
	}
	all("before")
	if err := w.slices.Delete(&resourcev1.ResourceSlice{ObjectMeta: objectOf[resourcev1.ResourceSlice](t, "{metadata: {name: s}}").ObjectMeta}); err != nil {
		t.Fatal(err)
	}
	all("one slice is away")
	if err := w.slices.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	all("all are away")
	held.Status.ReservedFor = append(held.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Name: "pod"})
	if err := w.claims.Update(held); err != nil {
		t.Fatal(err)
	}
	all("the claim changed meanwhile")
	if err := w.claims.Replace([]any{held}, ""); err != nil {
		t.Fatal(err)
	}
	all("the claims were read anew")
	w.pass(2 * awayFor)
	all("after hours")
	if err := w.claims.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	if err := w.mayTake(t, "20Gi"); err != nil {
		t.Errorf("the claim is gone: %v", err)
	}
}

// TestStartWhileSlicesAreAway begins with claims and without slices.
func TestStartWhileSlicesAreAway(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	slice := objectOf[resourcev1.ResourceSlice](t, `{metadata: {name: s}, spec: {driver: divvy.dev, pool: {name: n1}, devices: [{name: gpu-0, capacity: {memory: {value: 16Gi}}}]}}`)
	if err := w.slices.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	w.pass(2 * awayFor)
	// The next change forgets the size of what was published two hours ago.
	if err := w.slices.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	w.know(t, w.quotas, &corev1.ResourceQuota{}, `{metadata: {name: team, namespace: space}, spec: {hard: {requests.divvy.dev/gpu-memory: 20Gi}}}`)
	w.know(t, w.claims, &resourcev1.ResourceClaim{}, heldWhole)
	if err := w.mayTake(t, "1Gi"); !errors.Is(err, dialect.ErrRefused) || !strings.Contains(err.Error(), "no node publishes at the moment") {
		t.Errorf("a held GPU of unknown size: %v", err)
	}
	if err := w.slices.Add(slice); err != nil {
		t.Fatal(err)
	}
	if err := w.mayTake(t, "4Gi"); err != nil {
		t.Errorf("its size is known now: %v", err)
	}
	if err := w.mayTake(t, "5Gi"); err == nil {
		t.Error("its size is known and does not count")
	}
	// What is allocated as a share says itself how much it is.
	w = newWorld(t, "{plain: {}}")
	if err := w.slices.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	w.know(t, w.quotas, &corev1.ResourceQuota{}, `{metadata: {name: team, namespace: space}, spec: {hard: {requests.divvy.dev/gpu-memory: 20Gi}}}`)
	w.know(t, w.claims, &resourcev1.ResourceClaim{}, strings.Replace(heldWhole, "device: gpu-0", "device: gpu-0, shareID: a, consumedCapacity: {memory: 16Gi}", 1))
	if err := w.mayTake(t, "5Gi"); err == nil || !strings.Contains(err.Error(), "16Gi are used") {
		t.Errorf("5Gi beside 16Gi: %v", err)
	}
}

// TestOtherClassesCount has a claim wait that names a device class of somebody else's which selects our devices.
func TestOtherClassesCount(t *testing.T) {
	const waits = `{metadata: {name: w, namespace: space, uid: u7}, spec: {devices: {requests: [{name: r, exactly: {deviceClassName: CLASS}}, {name: n, exactly: {deviceClassName: nics}}]}}}`
	used := func(w *world) bool {
		err := w.mayTake(t, "1Gi")
		if err != nil && !strings.Contains(err.Error(), "16Gi are used") {
			t.Error(err)
		}
		return err != nil
	}
	class := func(w *world, expression string) {
		w.know(t, w.classes, &resourcev1.DeviceClass{}, `{metadata: {name: training}, spec: {selectors: [{cel: {expression: '`+expression+`'}}]}}`)
	}
	begin := func(name string) *world {
		w := newWorld(t, "{plain: {}}")
		w.know(t, w.quotas, &corev1.ResourceQuota{}, limited)
		w.know(t, w.claims, &resourcev1.ResourceClaim{}, strings.Replace(waits, "CLASS", name, 1))
		return w
	}
	for expression, ours := range map[string]bool{
		`device.driver == "divvy.dev"`:                                                  true,
		`device.driver.endsWith("dev") && device.allowMultipleAllocations == true`:      true,
		`device.driver == "gpu.example.com"`:                                            false,
		`device.attributes["divvy.dev"].model == "H100"`:                                false,
		`device.driver == `:                                                             false,
		`device.capacity["divvy.dev"].memory.compareTo(quantity("8Gi")) > 0`:            true,
		`device.driver == "divvy.dev" && device.allowMultipleAllocations.orValue(true)`: false,
	} {
		w := begin("training")
		if used(w) {
			t.Error("a claim counts whose class nobody knows")
		}
		if class(w, expression); used(w) != ours {
			t.Errorf("the class %s: counts %v", expression, !ours)
		}
	}
	w := begin("training")
	if err := w.slices.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	class(w, `device.driver == "divvy.dev"`)
	w.know(t, w.slices, &resourcev1.ResourceSlice{}, `{metadata: {name: s}, spec: {driver: divvy.dev, pool: {name: n1}, devices: [{name: g, allowMultipleAllocations: true, capacity: {memory: {value: 16Gi}}}]}}`)
	if !used(w) {
		t.Error("the class came before the devices, and its claim does not count")
	}
	if err := w.slices.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	if !used(w) {
		t.Error("the devices went, and the claim does not count any more")
	}
	if class(w, `device.driver == "gpu.example.com"`); used(w) {
		t.Error("the class selects another driver's devices now, and its claim counts")
	}
	class(w, `device.driver == "divvy.dev"`)
	if err := w.classes.Replace(nil, ""); err != nil || used(w) {
		t.Errorf("the class is gone, and its claim counts: %v", err)
	}
	if w := begin(v1alpha1.ClassWhole); !used(w) {
		t.Error("a claim of our own class does not count")
	}
}

// TestClaimOfTwoDrivers counts what a claim asks of ours, and not what it asks of another driver's.
func TestClaimOfTwoDrivers(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	w.know(t, w.quotas, &corev1.ResourceQuota{}, `{metadata: {name: team, namespace: space}, spec: {hard: {requests.divvy.dev/gpu: 2}}}`)
	const two = `{metadata: {name: two, uid: u1}, spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: share.divvy.dev, count: COUNT, capacity: {requests: {memory: 1Gi}}}},
		{name: nic, exactly: {deviceClassName: nic.example.com, count: 8}}]}}}`
	for n, passes := range map[string]bool{"2": true, "3": false} {
		_, err := w.judge.validateClaim(context.Background(), dryRun(claimRequest(t, strings.Replace(two, "COUNT", n, 1))))
		if (err == nil) != passes || err != nil && !strings.Contains(err.Error(), "3 more would be 3") {
			t.Errorf("%s GPUs and 8 of another driver's: %v", n, err)
		}
	}
}

// TestQuotasThatContradict has a thousand namespaces with two quotas each: the smaller one holds, and no namespace
// counts for another.
func TestQuotasThatContradict(t *testing.T) {
	w := newWorld(t, "{plain: {}, nvidia: {}}")
	var all []any
	for i := range 1000 {
		for name, n := range map[string]int{"large": 1000, "small": i % 3} {
			all = append(all, objectOf[corev1.ResourceQuota](t, fmt.Sprintf(`{metadata: {name: %s, namespace: n%d}, spec: {hard: {requests.nvidia.com/gpu: %d, requests.divvy.dev/gpu: 5, cpu: 0}}}`, name, i, n)))
		}
	}
	if err := w.quotas.Replace(all, ""); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		passed := 0
		for k := range 3 {
			request := claimRequest(t, fmt.Sprintf(`{metadata: {name: c%d-%d}, spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.divvy.dev}}]}}}`, i, k))
			request.Namespace = fmt.Sprint("n", i)
			_, err := w.judge.validateClaim(context.Background(), request)
			if err == nil {
				passed++
			} else if !strings.Contains(err.Error(), `quota "small" allows `) || strings.Contains(err.Error(), "\n") {
				t.Fatal(err)
			}
		}
		if passed != i%3 {
			t.Fatalf("namespace %d: %d whole GPUs passed quotas of %d and 1000", i, passed, i%3)
		}
	}
	// A quota that goes, or says nothing of GPUs any more, holds no longer.
	if err := w.quotas.Replace(all[:1], ""); err != nil || len(w.judge.quotas.held.of("n5")) > 0 || len(w.judge.quotas.held.of("n0")) == 0 {
		t.Errorf("quotas that are gone hold: %v", err)
	}
}

// TestOlderAgentsSlices has an agent of an earlier version, which publishes every GPU twice, beside one that publishes
// it once.
func TestOlderAgentsSlices(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	w.know(t, w.quotas, &corev1.ResourceQuota{}, `{metadata: {name: team, namespace: space}, spec: {hard: {requests.divvy.dev/gpu: 2, requests.divvy.dev/gpu-memory: 56Gi, requests.divvy.dev/gpu-cores: 200}}}`)
	w.know(t, w.slices, &resourcev1.ResourceSlice{}, `{metadata: {name: newer}, spec: {driver: divvy.dev, pool: {name: n2}, devices: [{name: gpu-1-shared, allowMultipleAllocations: true, capacity: {memory: {value: 40Gi}}}]}}`)
	w.know(t, w.claims, &resourcev1.ResourceClaim{}, heldWhole)
	w.know(t, w.claims, &resourcev1.ResourceClaim{}, strings.NewReplacer("name: held", "name: newer", "uid: u0", "uid: u1", "pool: n1, device: gpu-0", "pool: n2, device: gpu-1-shared, shareID: a, consumedCapacity: {memory: 40Gi}").Replace(heldWhole))
	for _, c := range []struct{ hard, refusal string }{
		{"requests.divvy.dev/gpu: 2", "2 are used"}, {"requests.divvy.dev/gpu-memory: 56Gi", "56Gi are used"}, {"requests.divvy.dev/gpu-cores: 200", "200 are used"},
	} {
		w.know(t, w.quotas, &corev1.ResourceQuota{}, `{metadata: {name: team, namespace: space}, spec: {hard: {`+c.hard+`}}}`)
		_, err := w.judge.mutatePod(context.Background(), podRequest(t, strings.Replace(asking, "{divvy", "{divvy.dev/gpu-cores: 1, divvy", 1)))
		if err == nil || !strings.Contains(err.Error(), c.refusal) {
			t.Errorf("%s: %v", c.hard, err)
		}
	}
}

// TestBusyAPIServer has the API server answer that it is asked too much. A review passes that on, so that whoever made
// the pod tries again.
func TestBusyAPIServer(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	w.client.PrependReactor("get", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewTooManyRequests("the server is busy", 1)
	})
	_, err := w.judge.validatePod(context.Background(), podRequest(t, usingTwo))
	if got := status(err); got.Code != http.StatusTooManyRequests || strings.Contains(got.Message, "\n") || !strings.Contains(got.Message, "the claim a") {
		t.Errorf("%+v", got)
	}
}
