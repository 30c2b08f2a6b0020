package explanation

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// queueObjectOf is a queue from the fields of its specification and status, in YAML.
func queueObjectOf(t *testing.T, name, spec, status string) *unstructured.Unstructured {
	t.Helper()
	var object map[string]any
	text := fmt.Sprintf("{apiVersion: divvy.dev/v1alpha1, kind: Queue, metadata: {name: %s, generation: 2}, spec: {%s}, status: {%s}}", name, spec, status)
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return &unstructured.Unstructured{Object: object}
}

func queueObjectsClient(objects ...runtime.Object) *dynamicfake.FakeDynamicClient {
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{queueResource: "QueueList"}, objects...)
}

func names(queues []Queue) string {
	var all []string
	for _, q := range queues {
		all = append(all, strings.Repeat(" ", q.Depth)+q.Name)
	}
	return strings.Join(all, "\n")
}

func TestQueues(t *testing.T) {
	r := reader()
	r.Objects = queueObjectsClient(
		queueObjectOf(t, "vision", "parent: research", `observedGeneration: 2, running: 4, waiting: 1, resources: [{unit: gpus, guaranteed: "4", entitled: "2.5", used: "4", lent: "0", borrowed: "0", demand: "5"}],
			conditions: [{type: Scaled, status: "True", reason: Scaled, message: "less\nis there", lastTransitionTime: "2026-05-04T12:00:00Z"}, {type: NoGPUs, status: "False", reason: x, message: x, lastTransitionTime: x}]`),
		queueObjectOf(t, "research", "", "observedGeneration: 1"),
		queueObjectOf(t, "eu", "parent: vision", ""),
		queueObjectOf(t, "lost", "parent: nobody", ""),
		queueObjectOf(t, "a", "parent: b", ""), queueObjectOf(t, "b", "parent: a", ""), queueObjectOf(t, "below-a", "parent: a", ""),
		queueObjectOf(t, "newer", "parent: research, colour: red", ""),
	)
	queues, err := r.Queues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := "a\n below-a\nb\nlost\nresearch\n newer\n vision\n  eu"; names(queues) != want {
		t.Errorf("%s\nwant\n%s", names(queues), want)
	}
	want := Queue{
		Name: "vision", Parent: "research", Depth: 1, Running: 4, Waiting: 1, Seen: true,
		Resources:  []v1alpha1.QueueUse{{Unit: v1alpha1.UnitGPUs, Guaranteed: 4000, Entitled: 2500, Used: 4000, Demand: 5000}},
		Conditions: []QueueCondition{{"Scaled", "less is there", "guarantee less to it or its siblings, or more to its parent"}},
	}
	if got := queues[6]; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := queues[4]; got.Seen || got.Resources == nil {
		t.Errorf("a queue of which nobody has told since it was changed: %+v", got)
	}
	if got := queues[5]; len(got.Conditions) != 1 || got.Conditions[0].Type != "Unread" || !strings.Contains(got.Conditions[0].Message, `unknown field "spec.colour"`) {
		t.Errorf("%+v", got)
	}
}

func TestQueueErrors(t *testing.T) {
	for _, c := range []struct{ answer, want error }{
		{apierrors.NewNotFound(queueResource.GroupResource(), ""), ErrNoQueues},
		{apierrors.NewForbidden(queueResource.GroupResource(), "", errors.New("not you")), ErrNoRight},
	} {
		r, client := reader(), queueObjectsClient()
		client.PrependReactor("list", "queues", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.answer })
		r.Objects = client
		if _, err := r.Queues(t.Context()); !errors.Is(err, c.want) {
			t.Errorf("%v, want %v", err, c.want)
		}
		err := r.FollowQueues(t.Context(), 0, func(err error) { t.Errorf("said %v", err) }, func([]Queue) error { t.Error("shown"); return nil })
		if !errors.Is(err, c.want) {
			t.Errorf("follow: %v, want %v", err, c.want)
		}
	}
}

// Changes are shown as they come, also after a watch has ended or the API server was away for a while.
func TestFollowQueues(t *testing.T) {
	client := queueObjectsClient(queueObjectOf(t, "a", "", ""))
	watches, lists := make(chan *watch.FakeWatcher, 8), 0
	client.PrependWatchReactor("queues", func(clienttesting.Action) (bool, watch.Interface, error) {
		w := watch.NewFake()
		watches <- w
		return true, w, nil
	})
	client.PrependReactor("list", "queues", func(clienttesting.Action) (bool, runtime.Object, error) {
		if lists++; lists == 2 {
			return true, nil, apierrors.NewServiceUnavailable("away")
		}
		return false, nil, nil
	})
	r := reader()
	r.Objects = client
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	shown, said, ended := make(chan string), make(chan error, 8), make(chan error, 1)
	go func() {
		ended <- r.FollowQueues(ctx, time.Nanosecond, func(err error) { said <- err }, func(queues []Queue) error {
			shown <- names(queues)
			return nil
		})
	}()
	expect := func(want string) {
		t.Helper()
		if got := <-shown; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	expect("a")
	w := <-watches
	w.Add(queueObjectOf(t, "b", "parent: a", ""))
	expect("a\n b")
	w.Delete(queueObjectOf(t, "a", "", ""))
	expect("b")
	w.Error(&metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired})
	expect("a") // as the second list that is answered says
	if err := <-said; !apierrors.IsServiceUnavailable(err) {
		t.Errorf("said %v", err)
	}
	(<-watches).Stop()
	expect("a")
	<-watches
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	errFull := errors.New("the pipe is closed")
	if err := r.FollowQueues(t.Context(), 0, nil, func([]Queue) error { return errFull }); !errors.Is(err, errFull) {
		t.Errorf("%v", err)
	}
}
