package controller

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// events returns the notes of the events on pods, with how often each was said.
func events(t testing.TB, client *fake.Clientset) map[string]int32 {
	t.Helper()
	list, err := client.EventsV1().Events(metav1.NamespaceAll).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	said := make(map[string]int32)
	for i := range list.Items {
		said[list.Items[i].Note] = 1
		if series := list.Items[i].Series; series != nil {
			said[list.Items[i].Note] = series.Count
		}
	}
	return said
}

func TestReasonsAreSaidOnce(t *testing.T) {
	client := fake.NewClientset()
	now := noon
	fresh := func() *reasons {
		return &reasons{client: client, now: func() time.Time { return now }, instance: "me", said: make(map[types.UID]*saying)}
	}
	r := fresh()
	pod := pending(t, "")
	offer := func(text string) {
		t.Helper()
		if r.due(pod.UID, text) {
			if err := r.say(context.Background(), pod, text); err != nil {
				t.Fatal(err)
			}
		}
	}
	said := func(what string, want map[string]int32) {
		t.Helper()
		got := events(t, client)
		for text, n := range want {
			if got[text] != n {
				t.Errorf("%s: %q was said %d times, want %d", what, text, got[text], n)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %v", what, got)
		}
	}
	offer("a")
	offer("a")
	said("the same", map[string]int32{"a": 1})
	offer("b")
	said("another, too soon", map[string]int32{"a": 1})
	now = now.Add(quiet)
	offer("b")
	now = now.Add(quiet)
	offer("a")
	said("another and back", map[string]int32{"a": 2, "b": 1})
	// After a restart nobody knows what was said, but the events do.
	r = fresh()
	now = now.Add(quiet)
	offer("a")
	said("after a restart", map[string]int32{"a": 2, "b": 1})
	// The events do not for long, while the pod may wait for days.
	for range 60 {
		now = now.Add(time.Minute)
		offer("a")
	}
	said("after an hour", map[string]int32{"a": 3, "b": 1})
	// A text that no event can hold is not another each time.
	long := noteOf(strings.Repeat("x", longestNote-1) + "é")
	for range 3 {
		now = now.Add(quiet)
		offer(noteOf(long + "é"))
	}
	said("a long text", map[string]int32{"a": 3, "b": 1, strings.Repeat("x", longestNote-1): 1})
	// What does not wait any more is forgotten.
	r.forget(map[types.UID]bool{})
	if len(r.said) != 0 {
		t.Error("a pod that is gone is remembered")
	}
	event := r.event(pod, strings.Repeat("x", 2000))
	if event.Reason != "NoShareFits" || event.Type != corev1.EventTypeWarning || event.ReportingController != "divvy" || event.Regarding.UID != "u1" || event.Regarding.Kind != "Pod" {
		t.Errorf("%+v", event)
	}
}

// TestReasonThatCannotBeSaid has an API server that takes no events: it is asked again, but not without end.
func TestReasonThatCannotBeSaid(t *testing.T) {
	client := fake.NewClientset()
	tries := 0
	client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		tries++
		return tries < 3, nil, apierrors.NewForbidden(eventsv1.Resource("events"), "", errors.New("exceeded quota"))
	})
	now := noon
	r := &reasons{client: client, now: func() time.Time { return now }, instance: "me", said: make(map[types.UID]*saying)}
	pod := pending(t, "")
	for range 60 {
		if r.due(pod.UID, "a") {
			if err := r.say(context.Background(), pod, "a"); (err != nil) != (tries < 3) {
				t.Errorf("try %d: %v", tries, err)
			}
			if !r.rest(pod.UID) {
				t.Error("the pod is not left alone")
			}
		}
		now = now.Add(2 * time.Second)
	}
	if got := events(t, client); tries != 3 || got["a"] != 1 {
		t.Errorf("tried %d times, said %v", tries, got)
	}
}

// A pod that waits for weeks beside others is told something else every time.
func TestRememberedTextsAreFew(t *testing.T) {
	r := &reasons{client: fake.NewClientset(), now: func() time.Time { return noon }, instance: "me", said: make(map[types.UID]*saying)}
	pod := pending(t, "")
	for i := range 3 * mostTexts {
		if err := r.say(context.Background(), pod, strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.said[pod.UID].count); n > mostTexts {
		t.Errorf("%d texts are remembered", n)
	}
}
