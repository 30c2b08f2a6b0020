package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// slotsWorld is a world in mode slots, with one node that has a GPU of 16 GiB.
func slotsWorld(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	w := newWorld(t, "{plain: {}}\nmode: slots", objects...)
	w.slices, w.pods = w.judge.fleet.nodeStore(), w.judge.quotas.accounts.slottedStore()
	w.know(t, w.slices, &corev1.Node{}, nodeText("n1", 16<<30))
	return w
}

func nodeText(name string, memory uint64) string {
	return fmt.Sprintf(`{metadata: {name: %s, annotations: {divvy.dev/gpus: '{"version":1,"gpus":[{"uuid":"GPU-aaaa","index":0,"memory":%d,"numaNode":-1}]}'}}}`, name, memory)
}

// slottedPod is a pod that asks for a share of 4 GiB, and has it once it has a node.
func slottedPod(name, node, phase string) string {
	const share = `"name":"main","containers":["main"]`
	const config = `"config":{"policy":"weighted","weight":1,"class":"online","backend":"slice"}`
	assigned := ""
	if node != "" {
		assigned = fmt.Sprintf(`, divvy.dev/assignment: '{"version":1,"pod":"uid-%s","shares":[{%s,"gpus":[{"uuid":"GPU-aaaa","memory":4294967296}],%s}]}'`, name, share, config)
	}
	return fmt.Sprintf(`{metadata: {name: %[1]s, namespace: space, uid: uid-%[1]s, annotations: {divvy.dev/request: '{"version":1,"shares":[{%[2]s,"gpus":1,"memory":4294967296,%[3]s}]}'%[4]s}},
		spec: {nodeName: "%[5]s", schedulerName: divvy-scheduler, containers: [{name: main, image: i, resources: {limits: {divvy.dev/shares: 1}, requests: {divvy.dev/shares: 1}}}]}, status: {phase: "%[6]s"}}`,
		name, share, config, assigned, node, phase)
}

// In mode slots a quota counts pods that wait, that run and that were let through a moment ago, each once, and no other ones.
func TestQuotaOfSlots(t *testing.T) {
	w := slotsWorld(t)
	w.know(t, w.quotas, &corev1.ResourceQuota{}, `{metadata: {name: team, namespace: space}, spec: {hard: {requests.divvy.dev/gpu-memory: 12Gi}}}`)
	ask := func(name string) error {
		_, err := w.judge.validateSlotted(t.Context(), podRequest(t, slottedPod(name, "", "")))
		return err
	}
	for _, name := range []string{"a", "b"} {
		if err := ask(name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.judge.validateSlotted(t.Context(), dryRun(podRequest(t, slottedPod("dry", "", "")))); err != nil {
		t.Errorf("a dry run: %v", err)
	}
	// Both are told of, and counted once each; one of them gets its node.
	w.know(t, w.pods, &corev1.Pod{}, slottedPod("a", "", "Pending"))
	w.know(t, w.pods, &corev1.Pod{}, slottedPod("b", "", "Pending"))
	w.know(t, w.pods, &corev1.Pod{}, slottedPod("b", "n1", "Running"))
	w.know(t, w.pods, &corev1.Pod{}, `{metadata: {name: plain, namespace: space}, spec: {containers: [{name: main}]}}`)
	if err := ask("c"); err != nil {
		t.Errorf("the third: %v", err)
	}
	if err := ask("d"); !errors.Is(err, dialect.ErrRefused) || !strings.Contains(err.Error(), "12Gi are used, and 4Gi more would be 16Gi") {
		t.Errorf("the fourth: %v", err)
	}
	// What has ended holds nothing, and neither does what is gone.
	w.know(t, w.pods, &corev1.Pod{}, slottedPod("b", "n1", "Succeeded"))
	if err := ask("d"); err != nil {
		t.Errorf("in the place of one that has ended: %v", err)
	}
	if err := ask("e"); err == nil {
		t.Error("and one more")
	}
	if err := w.pods.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	if err := ask("e"); err != nil {
		t.Errorf("in the place of one that is gone: %v", err)
	}
	// A pod that was let through and never made is forgotten.
	w.pass(2 * admittedFor)
	if err := ask("f"); err != nil {
		t.Errorf("in the place of those that were never made: %v", err)
	}
}

// What somebody wrote by hand is counted and refused like what was translated.
func TestSlottedByHand(t *testing.T) {
	w := slotsWorld(t)
	w.know(t, w.quotas, &corev1.ResourceQuota{}, `{metadata: {name: team, namespace: space}, spec: {hard: {requests.divvy.dev/gpu-memory: 3Gi}}}`)
	if _, err := w.judge.validateSlotted(t.Context(), podRequest(t, slottedPod("a", "", ""))); !errors.Is(err, dialect.ErrRefused) || !strings.Contains(err.Error(), "allows 3Gi") {
		t.Errorf("%v", err)
	}
	w = slotsWorld(t)
	w.know(t, w.ranges, &corev1.LimitRange{}, `{metadata: {name: team, namespace: space}, spec: {limits: [{type: Container, max: {divvy.dev/gpu-memory: 2Gi}}]}}`)
	if _, err := w.judge.validateSlotted(t.Context(), podRequest(t, slottedPod("a", "", ""))); !errors.Is(err, dialect.ErrRefused) || !strings.Contains(err.Error(), `LimitRange "team" allows 2Gi of divvy.dev/gpu-memory, and container main asks for 4Gi`) {
		t.Errorf("%v", err)
	}
	slot := strings.Replace(slottedPod("a", "", ""), v1alpha1.RequestAnnotation, "divvy.dev/other", 1)
	if _, err := w.judge.validateSlotted(t.Context(), podRequest(t, slot)); !errors.Is(err, dialect.ErrRefused) || !strings.Contains(err.Error(), "which Divvy counts itself") {
		t.Errorf("%v", err)
	}
}

// A part of a GPU counts of the largest that a node says it has, while that is so and for a while afterwards.
func TestSizesOfNodes(t *testing.T) {
	w := slotsWorld(t)
	w.know(t, w.slices, &corev1.Node{}, nodeText("n2", 40<<30))
	w.know(t, w.slices, &corev1.Node{}, `{metadata: {name: n3}}`)
	if sizes := w.judge.fleet.inventory().translations.Sizes; !slices.Equal(sizes, []uint64{16 << 30, 40 << 30}) {
		t.Errorf("GPUs have %v", sizes)
	}
	before := w.judge.fleet.inventory()
	w.know(t, w.slices, &corev1.Node{}, nodeText("n2", 40<<30))
	if w.judge.fleet.inventory() != before {
		t.Error("a node that says the same is read again")
	}
	if err := w.slices.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}); err != nil {
		t.Fatal(err)
	}
	if sizes := w.judge.fleet.inventory().translations.Sizes; !slices.Equal(sizes, []uint64{16 << 30}) {
		t.Errorf("without that node, GPUs have %v", sizes)
	}
}

func bindingRequest(t *testing.T, pod, annotations string) *admissionv1.AdmissionRequest {
	request := requestOf(t, corev1.SchemeGroupVersion.WithResource("pods"), "Binding", `{metadata: {name: `+pod+`, annotations: {`+annotations+`}}, target: {kind: Node, name: n1}}`)
	request.SubResource = "binding"
	return request
}

// A pod that asks for GPUs is bound with them or not at all, whoever binds it.
func TestBindingGivesGPUs(t *testing.T) {
	asks, plain := &corev1.Pod{}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "plain"}}
	w := slotsWorld(t, plain)
	w.know(t, cacheOf(func(pod *corev1.Pod) { asks = pod }), &corev1.Pod{}, slottedPod("a", "", "Pending"))
	if err := w.client.Tracker().Add(asks); err != nil {
		t.Fatal(err)
	}
	old := bindingRequest(t, "a", "")
	old.SubResource, old.Resource.Resource = "", "bindings"
	for name, c := range map[string]struct {
		request *admissionv1.AdmissionRequest
		refused bool
	}{
		"with an assignment":    {bindingRequest(t, "a", "divvy.dev/assignment: x"), false},
		"without":               {bindingRequest(t, "a", ""), true},
		"without, the old form": {old, true},
		"with something else":   {bindingRequest(t, "a", "a: b"), true},
		"of a plain pod":        {bindingRequest(t, "plain", ""), false},
		"of a pod that is gone": {bindingRequest(t, "gone", ""), false},
	} {
		if _, err := w.judge.validateBinding(t.Context(), c.request); (err != nil) != c.refused || err != nil && !errors.Is(err, dialect.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// An API server that does not say what the pod asks leaves it unbound.
	w.client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewTooManyRequests("busy", 1)
	})
	if _, err := w.judge.validateBinding(t.Context(), bindingRequest(t, "plain", "")); !apierrors.IsTooManyRequests(err) {
		t.Errorf("while the API server is busy: %v", err)
	}
}

// cacheOf hands on what it is told.
func cacheOf(put func(*corev1.Pod)) *store[*corev1.Pod] {
	return &store[*corev1.Pod]{
		read: func(object metav1.Object) (*corev1.Pod, error) { return as[*corev1.Pod](object) },
		put:  func(pod brief[*corev1.Pod]) { put(pod.of) },
	}
}

// Kubernetes before 1.34 serves no resource.k8s.io/v1, so in mode slots nothing of it is asked for.
func TestSlotsFollowNoClaims(t *testing.T) {
	translator, err := dialect.NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\nmode: slots\ndialects: {plain: {}}"))
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset()
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetResource().Group == "resource.k8s.io" {
			t.Errorf("it asks to %s %s", action.GetVerb(), action.GetResource())
		}
		return false, nil, nil
	})
	known := newKnown(client, nil, translator)
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	known.start(ctx)
	defer known.shutdown()
	defer stop()
	if err := known.wait(ctx); err != nil {
		t.Error(err)
	}
}
