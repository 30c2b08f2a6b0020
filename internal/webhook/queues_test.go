package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// withQueues is a configuration in which Divvy's scheduler serves queues.
const withQueues = "{plain: {}}\nscheduler: {users: ['system:serviceaccount:divvy-system:divvy-scheduler'], queues: true}"

// queueText is a queue in YAML.
func queueText(name, spec string) string {
	return fmt.Sprintf("{apiVersion: divvy.dev/v1alpha1, kind: Queue, metadata: {name: %q, generation: 1, uid: %q}, spec: %s}", name, name, spec)
}

// holding is the specification of a queue with so many GPUs.
func holding(parent string, guaranteed int) string {
	return fmt.Sprintf("{parent: %q, resources: [{guaranteed: %d}]}", parent, guaranteed)
}

func queueObject(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	asJSON, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	do(t, object.UnmarshalJSON(asJSON))
	return object
}

// knowQueues tells the server of queues.
func (w *world) knowQueues(t testing.TB, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err := w.queues.Add(queueObject(t, text)); err != nil {
			t.Fatal(err)
		}
	}
}

// queueRequest is about a queue that becomes another one; either is empty where there is none.
func queueRequest(t testing.TB, before, after string) *admissionv1.AdmissionRequest {
	t.Helper()
	request := requestOf(t, queueResource, v1alpha1.KindQueue, after)
	request.Namespace, request.Operation = "", admissionv1.Update
	if before == "" {
		request.Operation = admissionv1.Create
	}
	one := after
	if after == "" {
		request.Operation, request.Object, one = admissionv1.Delete, runtime.RawExtension{}, before
	}
	request.Name = queueObject(t, one).GetName()
	if before != "" {
		text, err := yaml.YAMLToJSONStrict([]byte(before))
		if err != nil {
			t.Fatal(err)
		}
		request.OldObject.Raw = text
	}
	return request
}

func TestQueuesAreReviewed(t *testing.T) {
	research := queueText("research", holding("", 8))
	busy := strings.Replace(queueText("research", "{}"), "spec: {}", "spec: {}, status: {running: 3, waiting: 2, resources: [{unit: gpus, used: '3'}]}", 1)
	for _, c := range []struct {
		name             string
		known            []string
		before, after    string
		refused, warning string
	}{
		{"good", []string{research}, "", queueText("vision", holding("research", 4)), "", ""},
		{"every fault", nil, "", queueText("vision", `{grace: -1s, resources: [{guaranteed: 4, limit: 2}, {unit: tons}]}`),
			"queue refused: queue vision: resource 0: limit 2 is below guaranteed 4; queue vision: resource 1: unit \"tons\": choose gpus, cores or memory; queue vision: grace -1s", ""},
		{"an unknown field", nil, "", queueText("vision", `{guaranteed: 4}`), `queue refused: invalid request: read the queue: unknown field "spec.guaranteed"`, ""},
		{"a parent to come", nil, "", queueText("vision", holding("research", 4)), "", "there is no queue research"},
		{"more than the parent has", []string{research, queueText("speech", holding("research", 5))}, "", queueText("vision", holding("research", 4)),
			"queue refused: queue vision: the parts of queue research would have 9 GPUs guaranteed (speech 5, vision 4), and research itself has 8", ""},
		{"too little for its parts", []string{research, queueText("speech", holding("research", 5))}, research, queueText("research", holding("", 4)), "research itself has 4", ""},
		{"a circle", []string{research, queueText("speech", holding("research", 5))}, research, queueText("research", holding("speech", 8)),
			"queue research: it would be its own ancestor: research → speech → research", ""},
		{"another's namespace", []string{queueText("speech", "{namespaces: [x]}")}, "", queueText("vision", "{namespaces: [x]}"), "namespace x is queue speech's", ""},
		{"its own namespace", []string{queueText("speech", "{namespaces: [x]}")}, queueText("speech", "{namespaces: [x]}"), queueText("speech", "{namespaces: [x, o]}"), "", ""},
		{"one that was deleted a moment ago", []string{queueText("vision", holding("research", 9)), research}, "", queueText("vision", holding("research", 9)), "would have 9 GPUs", ""},
		{"worse than is known", []string{research, queueText("vision", holding("research", 4))}, queueText("vision", holding("research", 9)), queueText("vision", holding("research", 9)),
			"", "would have 9 GPUs"},
		{"one that did not read", nil, `{apiVersion: divvy.dev/v1alpha1, kind: Queue, metadata: {name: vision}, spec: {more: 1}}`, queueText("vision", "{}"), "", ""},
		{"deleted with parts", []string{research, queueText("speech", holding("research", 5))}, research, "", "", "its parts (speech) have no guarantee and start nothing"},
		{"deleted in use", nil, busy, "", "", "3 of its pods run"},
		{"deleted", []string{research}, research, "", "", ""},
	} {
		w := newWorld(t, withQueues)
		w.knowQueues(t, c.known...)
		given, err := w.judge.validateQueue(context.Background(), queueRequest(t, c.before, c.after))
		switch {
		case c.refused == "" && err != nil, c.refused != "" && (err == nil || !errors.Is(err, errQueue) || !strings.Contains(oneLine(err), c.refused)):
			t.Errorf("%s: %v, want %q", c.name, err, c.refused)
		case err != nil && status(err).Code != http.StatusForbidden:
			t.Errorf("%s: status %+v", c.name, status(err))
		}
		if got := strings.Join(given.warnings, "; "); !strings.Contains(got, c.warning) || c.warning == "" && c.refused == "" && got != "" {
			t.Errorf("%s: warnings %q, want %q", c.name, got, c.warning)
		}
	}
}

// TestManyFaults has a queue with more faults than anybody reads.
func TestManyFaults(t *testing.T) {
	w := newWorld(t, withQueues)
	var taken []string
	for i := range 100 {
		taken = append(taken, fmt.Sprint("n", i))
	}
	all := "{namespaces: [" + strings.Join(taken, ", ") + "]}"
	w.knowQueues(t, queueText("a", all))
	_, err := w.judge.validateQueue(context.Background(), queueRequest(t, "", queueText("b", all)))
	if err == nil || strings.Count(err.Error(), "is queue a's") != mostSaid || !strings.HasSuffix(err.Error(), "and 84 more") {
		t.Errorf("%v", err)
	}
}

// Without queues nothing is said of one, whoever asks.
func TestQueuesThatNobodyServes(t *testing.T) {
	w := newWorld(t, withScheduler)
	if given, err := w.judge.validateQueue(context.Background(), queueRequest(t, "", queueText("a", "{parent: a}"))); err != nil || len(given.warnings) > 0 || w.judge.queues.now() != nil {
		t.Errorf("%+v, %v", given, err)
	}
}

// TestQueuesAreFollowed has queues made, changed and deleted while the server runs, one of which does not read, and an API server
// that does not have the kind yet.
func TestQueuesAreFollowed(t *testing.T) {
	w := newWorld(t, withQueues)
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{queueResource: "QueueList"})
	served := make(chan struct{})
	missing := func() error {
		select {
		case <-served:
			return nil
		default:
			return apierrors.NewNotFound(queueResource.GroupResource(), "")
		}
	}
	client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		err := missing()
		return err != nil, nil, err
	})
	client.PrependWatchReactor("*", func(clienttesting.Action) (bool, watch.Interface, error) {
		err := missing()
		return err != nil, nil, err
	})
	k := newKnown(w.client, client, w.judge.translator)
	ctx, stop := context.WithCancel(context.Background())
	k.start(ctx)
	defer k.shutdown()
	defer stop()
	do(t, k.wait(ctx))
	until := func(namespace, want string) {
		t.Helper()
		var got string
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			tree := k.queues.now()
			if got = tree.Name(tree.Of(namespace)); got == want {
				return
			}
		}
		t.Fatalf("namespace %s is of queue %q, want %q; trouble: %v", namespace, got, want, k.trouble())
	}
	until("x", "")
	objects := client.Resource(queueResource)
	write := func(text string, generation int64) {
		t.Helper()
		object := queueObject(t, text)
		object.SetGeneration(generation)
		var err error
		if generation == 1 {
			_, err = objects.Create(ctx, object, metav1.CreateOptions{})
		} else {
			_, err = objects.Update(ctx, object, metav1.UpdateOptions{})
		}
		do(t, err)
	}
	write(queueText("vision", "{namespaces: [x]}"), 1)
	write(queueText("odd", "{namespaces: [o], more: 1}"), 1)
	close(served)
	until("x", "vision")
	until("o", "")
	write(queueText("vision", "{namespaces: [z]}"), 2)
	until("z", "vision")
	before := k.queues.now()
	write(queueText("odd", "{namespaces: [o]}"), 2)
	until("o", "odd")
	if before == k.queues.now() {
		t.Error("a tree has changed")
	}
	do(t, objects.Delete(ctx, "vision", metav1.DeleteOptions{}))
	until("z", "")
}

// A status that changes leaves the tree as it is.
func TestStatusOfQueues(t *testing.T) {
	w := newWorld(t, withQueues)
	w.knowQueues(t, queueText("vision", "{namespaces: [x]}"))
	tree := w.judge.queues.now()
	w.knowQueues(t, strings.Replace(queueText("vision", "{namespaces: [x]}"), "spec:", "status: {running: 1}, spec:", 1))
	if w.judge.queues.now() != tree {
		t.Error("another tree")
	}
}

// An API server without the kind, asked for a stream of all that there is, is then asked for a list.
func TestStreamOfMissingKind(t *testing.T) {
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{queueResource: "QueueList"})
	client.PrependWatchReactor("*", func(clienttesting.Action) (bool, watch.Interface, error) {
		return true, nil, apierrors.NewNotFound(queueResource.GroupResource(), "")
	})
	yes := true
	source := optional{client.Resource(queueResource)}
	if _, err := source.Watch(context.Background(), metav1.ListOptions{SendInitialEvents: &yes}); !apierrors.IsInvalid(err) {
		t.Errorf("a stream: %v", err)
	}
	if _, err := source.Watch(context.Background(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a watch: %v", err)
	}
}
