package webhook

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// admitted has a pod translated and let through, as the API server then stores it.
func (w *world) admitted(t testing.TB, name string) (*corev1.Pod, error) {
	t.Helper()
	pod := w.translated(t, asking)
	pod.Name, pod.UID = name, types.UID("pod-"+name)
	_, err := w.judge.validateNotes(context.Background(), asked(t, nil, pod))
	return pod, err
}

// claimsOf are the claims that the scheduler makes of what a pod describes.
func claimsOf(t testing.TB, pod *corev1.Pod) []*resourcev1.ResourceClaim {
	t.Helper()
	specs, err := dialect.Described(pod)
	if err != nil {
		t.Fatal(err)
	}
	var all []*resourcev1.ResourceClaim
	for name, spec := range specs {
		all = append(all, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: pod.Namespace, UID: types.UID("claim-" + name)}, Spec: spec})
	}
	return all
}

// used is the memory that counts in the namespace of the requests, in GiB.
func (w *world) used() uint64 {
	var used dialect.Use
	a := w.judge.quotas.accounts
	_ = a.check("space", false, func(one *account) error { used = one.used(); return nil })
	return used.Memory >> 30
}

func do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestQuotaOfPodsThatWait follows a pod of Divvy's scheduler from its review to its end: it counts once all the time.
func TestQuotaOfPodsThatWait(t *testing.T) {
	w := newWorld(t, withScheduler)
	w.know(t, w.quotas, &corev1.ResourceQuota{}, limited)
	is := func(what string, want uint64) {
		t.Helper()
		if got := w.used(); got != want {
			t.Errorf("%s: %d GiB are used, want %d", what, got, want)
		}
	}
	pod, err := w.admitted(t, "a")
	do(t, err)
	is("let through", 4)
	do(t, w.pods.Add(pod))
	is("stored", 4)
	w.pass(time.Hour)
	is("after an hour", 4)
	claim := claimsOf(t, pod)[0]
	do(t, w.claims.Add(claim))
	is("claimed", 4)
	do(t, w.claims.Delete(claim))
	is("taken back, because the binding failed", 4)
	do(t, w.claims.Add(claim))
	do(t, w.pods.Delete(pod)) // the pod is bound, and selected no more
	is("bound", 4)
	w.pass(time.Hour)
	is("running", 4)
	do(t, w.claims.Delete(claim))
	is("ended", 0)

	// Its claim is told after the pod was bound.
	pod, err = w.admitted(t, "b")
	do(t, err)
	do(t, w.pods.Add(pod))
	do(t, w.pods.Delete(pod))
	is("bound, its claim not told", 4)
	claim = claimsOf(t, pod)[0]
	do(t, w.claims.Add(claim))
	is("and told", 4)
	w.pass(time.Hour)
	is("and running", 4)
	do(t, w.claims.Delete(claim))

	// A pod that is deleted while it waits counts for some seconds.
	pod, err = w.admitted(t, "c")
	do(t, err)
	do(t, w.pods.Add(pod))
	do(t, w.pods.Delete(pod))
	is("deleted", 4)
	w.pass(expectedFor + time.Second)
	is("deleted, and no claim came", 0)

	// One that was never stored, as well.
	_, err = w.admitted(t, "d")
	do(t, err)
	is("let through", 4)
	w.pass(expectedFor + time.Second)
	is("and not stored", 0)
}

// TestQuotaRefusesWhatWaits fills a quota of 16 GiB with pods that wait.
func TestQuotaRefusesWhatWaits(t *testing.T) {
	w := newWorld(t, withScheduler)
	w.know(t, w.quotas, &corev1.ResourceQuota{}, limited)
	dry := asked(t, nil, w.translated(t, asking))
	for range 5 {
		if _, err := w.judge.validateNotes(context.Background(), dryRun(dry)); err != nil {
			t.Fatalf("a dry run counts: %v", err)
		}
	}
	var pods []*corev1.Pod
	for i := range 4 {
		pod, err := w.admitted(t, fmt.Sprint(i))
		do(t, err)
		do(t, w.pods.Add(pod))
		pods = append(pods, pod)
	}
	w.pass(time.Hour)
	const full = `quota "team" allows 16Gi of requests.divvy.dev/gpu-memory: 16Gi are used, and 4Gi more would be 20Gi`
	if _, err := w.admitted(t, "more"); !errors.Is(err, dialect.ErrRefused) || !strings.Contains(err.Error(), full) {
		t.Errorf("a fifth: %v", err)
	}
	// A claim by hand finds no room either, and one of a name that is promised is the promise.
	if _, err := w.judge.validateClaim(context.Background(), claimRequest(t, claimOf("9", "4Gi"))); !errors.Is(err, dialect.ErrRefused) {
		t.Errorf("a claim by hand: %v", err)
	}
	promised := claimsOf(t, pods[0])[0]
	request := claimRequest(t, strings.Replace(claimOf("9", "4Gi"), "name: c9", "name: "+promised.Name, 1))
	if _, err := w.judge.validateClaim(context.Background(), request); err != nil {
		t.Errorf("the claim of a pod that waits: %v", err)
	}
	if got := w.used(); got != 16 {
		t.Errorf("%d GiB are used", got)
	}
	// A copy of a pod names the same claim, so it adds nothing; other sizes of GPU change nothing either.
	again := pods[1].DeepCopy()
	again.Name, again.UID = "copy", "pod-copy"
	if _, err := w.judge.validateNotes(context.Background(), asked(t, nil, again)); err != nil {
		t.Errorf("a copy: %v", err)
	}
	do(t, w.pods.Add(again))
	w.know(t, w.slices, &resourcev1.ResourceSlice{}, `{metadata: {name: new}, spec: {driver: divvy.dev, pool: {name: new}, devices: [{name: new, capacity: {memory: {value: 141Gi}}}]}}`)
	if got := w.used(); got != 16 {
		t.Errorf("%d GiB are used beside a copy", got)
	}
	do(t, w.pods.Delete(again))
	if got := w.used(); got != 16 {
		t.Errorf("%d GiB are used after the copy is gone", got)
	}
	// A list without the pods, as after a pause of the watch, forgets them.
	do(t, w.pods.Replace(nil, "9"))
	w.pass(time.Hour)
	if got := w.used(); got != 0 {
		t.Errorf("%d GiB are used by nobody", got)
	}
	if n := len(w.judge.quotas.accounts.of); n > 1 {
		t.Errorf("%d accounts", n)
	}
}

// TestWaitingPodsOfUnknownSize has pods ask for whole GPUs: what they count for follows the sizes that are known.
func TestWaitingPodsOfUnknownSize(t *testing.T) {
	w := newWorld(t, withScheduler)
	pod := w.translated(t, `{spec: {containers: [{name: main, image: i, resources: {limits: {divvy.dev/gpu: 1}}}]}}`)
	pod.UID = "p"
	do(t, w.pods.Add(pod))
	for _, c := range []struct {
		size string
		want uint64
	}{{"8Gi", 16}, {"141Gi", 141}} {
		w.know(t, w.slices, &resourcev1.ResourceSlice{}, `{metadata: {name: new}, spec: {driver: divvy.dev, pool: {name: new}, devices: [{name: new, capacity: {memory: {value: `+c.size+`}}}]}}`)
		if got := w.used(); got != c.want {
			t.Errorf("with a GPU of %s %d GiB are used, want %d", c.size, got, c.want)
		}
	}
	done := pod.DeepCopy()
	done.Status.Phase = corev1.PodFailed
	do(t, w.pods.Update(done))
	w.pass(time.Hour)
	if got := w.used(); got != 0 {
		t.Errorf("a pod that failed uses %d GiB", got)
	}
	forged := pod.DeepCopy()
	forged.UID, forged.Spec.ResourceClaims = "forged", nil
	do(t, w.pods.Add(forged))
	if got := w.used(); got != 0 {
		t.Errorf("what nobody makes uses %d GiB", got)
	}
}

// life is what happens to a pod and its claim, in the order of each watch.
type life struct {
	pod          *corev1.Pod
	claim        *resourcev1.ResourceClaim
	pods, claims []string
	told         bool
	there        map[string]bool // whether pod and claim are known
}

// TestCountsOnceInAnyOrder plays lives of pods whose two watches tell at their own pace: what is known to wait or to have a
// claim counts, none counts twice, and in the end what there is counts.
func TestCountsOnceInAnyOrder(t *testing.T) {
	random := rand.New(rand.NewSource(5))
	ends := [][2][]string{
		{{"add", "change", "delete"}, {"add", "allocate"}},           // it runs
		{{"add", "change", "delete"}, {"add", "allocate", "delete"}}, // it ended
		{{"add", "change"}, {"add", "delete"}},                       // its binding failed, and it waits
		{{"add", "delete"}, {"add", "delete", "add", "allocate"}},    // it runs at the second try
		{{"add", "change"}, nil},                                     // it waits
	}
	for round := range 200 {
		w := newWorld(t, withScheduler)
		var lives []*life
		truth := uint64(0)
		for i := range 1 + random.Intn(4) {
			pod := w.translated(t, asking)
			pod.Name, pod.UID = fmt.Sprint(i), types.UID(fmt.Sprint("pod-", i))
			end := ends[random.Intn(len(ends))]
			lives = append(lives, &life{pod: pod, claim: claimsOf(t, pod)[0], pods: end[0], claims: end[1], there: make(map[string]bool)})
			if last := len(end[1]) - 1; end[0][len(end[0])-1] != "delete" || last >= 0 && end[1][last] != "delete" {
				truth += 4
			}
		}
		for left := true; left; {
			left = false
			for _, l := range lives {
				if len(l.pods)+len(l.claims) == 0 {
					continue
				}
				left = true
				w.live(t, l, random.Intn(2) == 0)
			}
			var atMost, atLeast uint64
			for _, l := range lives {
				if l.told {
					atMost += 4
				}
				if l.there["pod"] || l.there["claim"] {
					atLeast += 4
				}
			}
			if got := w.used(); got < atLeast || got > atMost {
				t.Fatalf("round %d: %d GiB are used, want %d to %d", round, got, atLeast, atMost)
			}
		}
		w.pass(time.Hour)
		if got := w.used(); got != truth {
			t.Fatalf("round %d: %d GiB are used in the end, want %d", round, got, truth)
		}
	}
}

// live tells of the next thing that happens to a pod or to its claim.
func (w *world) live(t *testing.T, l *life, ofPod bool) {
	t.Helper()
	store, object, events, what := w.claims, any(l.claim), &l.claims, "claim"
	if ofPod && len(l.pods) > 0 || len(l.claims) == 0 {
		store, object, events, what = w.pods, l.pod, &l.pods, "pod"
	}
	event := (*events)[0]
	*events = (*events)[1:]
	switch event {
	case "add":
		l.told, l.there[what] = true, true
		do(t, store.Add(object))
	case "change":
		changed := l.pod.DeepCopy()
		changed.Labels = map[string]string{"a": "b"}
		do(t, store.Update(changed))
	case "allocate":
		changed := l.claim.DeepCopy()
		amounts := changed.Spec.Devices.Requests[0].Exactly.Capacity.Requests
		changed.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "gpu", Driver: v1alpha1.Driver, Pool: "n1", Device: "gpu-0-shared", ShareID: ptr(types.UID("s")), ConsumedCapacity: amounts},
		}}}
		do(t, store.Update(changed))
	case "delete":
		l.there[what] = false
		do(t, store.Delete(object))
	}
}

// mostPerPod is what the server may keep of a pod that waits, in bytes.
const mostPerPod = 1 << 10

// TestScaleOfWaitingPods bounds what the server keeps of pods that wait, and what their reviews leave to collect.
func TestScaleOfWaitingPods(t *testing.T) {
	const many = 5000
	w := newWorld(t, withScheduler)
	w.know(t, w.quotas, &corev1.ResourceQuota{}, `{metadata: {name: team, namespace: space}, spec: {hard: {requests.divvy.dev/gpu-memory: 1Ei}}}`)
	before := live()
	for i := range many {
		pod := w.translated(t, asking)
		pod.Namespace, pod.Name, pod.UID = fmt.Sprint("team-", i/100), fmt.Sprint("training-", i), types.UID(fmt.Sprintf("6f1c3b52-9d6e-4f5a-8c11-%012d", i))
		do(t, w.pods.Add(pod))
	}
	kept := int64(live()-before) / many
	t.Logf("%d bytes a pod", kept)
	if kept > mostPerPod {
		t.Errorf("%d bytes are kept of a pod that waits", kept)
	}
	create, store := podRequest(t, asking), asked(t, nil, w.translated(t, asking))
	for what, review := range map[string]func() (admission, error){
		"translating": func() (admission, error) { return w.judge.mutatePod(context.Background(), create) },
		"checking":    func() (admission, error) { return w.judge.validateNotes(context.Background(), store) },
	} {
		bytes := allocated(func() {
			if _, err := review(); err != nil {
				t.Fatal(err)
			}
		})
		t.Logf("%s leaves %d bytes", what, bytes)
		if bytes > mostPerReview {
			t.Errorf("%s leaves %d bytes to collect, want at most %d", what, bytes, mostPerReview)
		}
	}
	if got := len(w.judge.quotas.accounts.of); got != many/100+1 {
		t.Errorf("%d accounts", got)
	}
}

// TestFollowsWaitingPods: pods are followed where Divvy's scheduler runs, and only those that wait for it.
func TestFollowsWaitingPods(t *testing.T) {
	for dialects, want := range map[string]string{
		"{plain: {}}": "",
		withScheduler: "spec.nodeName=,spec.schedulerName=divvy-scheduler",
		withScheduler + "\nschedulerName: default-scheduler": "spec.nodeName=,spec.schedulerName=default-scheduler",
	} {
		w := newWorld(t, dialects)
		selectors := make(chan string, 8)
		w.client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			selectors <- action.(clienttesting.ListAction).GetListRestrictions().Fields.String()
			return false, nil, nil
		})
		ctx, stop := context.WithCancel(context.Background())
		known := newKnown(w.client, nil, w.judge.translator)
		known.start(ctx)
		do(t, known.wait(ctx))
		var got string
		if len(selectors) > 0 {
			got = <-selectors
		}
		if got != want {
			t.Errorf("%s: pods are listed by %q, want %q", dialects, got, want)
		}
		deadline := time.Now().Add(time.Minute)
		for known.accounts.followed().IsZero() {
			if time.Now().After(deadline) {
				t.Fatalf("%s: the API server tells, but is not known to", dialects)
			}
			time.Sleep(time.Millisecond)
		}
		stop()
		known.shutdown()
	}
	early, late := noon, noon.Add(time.Second)
	if later(early, late) != late || later(late, early) != late || !later(early, time.Time{}).IsZero() || !later(time.Time{}, early).IsZero() {
		t.Error("what is told of two kinds is told since the later of them, if it is")
	}
}
