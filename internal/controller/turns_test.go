package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// However many pods of one namespace wait, one of another is the next but one.
func TestNamespacesTakeTurns(t *testing.T) {
	queue := newTurns()
	defer queue.ShutDown()
	for i := range 1000 {
		queue.Add(cache.NewObjectName("crowded", fmt.Sprintf("pod-%03d", i)))
	}
	queue.Add(cache.NewObjectName("quiet", "first"))
	queue.Add(cache.NewObjectName("quiet", "second"))
	var got []string
	for range 5 {
		pod, _ := queue.Get()
		queue.Done(pod)
		got = append(got, pod.String())
	}
	want := []string{"crowded/pod-000", "quiet/first", "crowded/pod-001", "quiet/second", "crowded/pod-002"}
	if !slices.Equal(got, want) || queue.Len() != 997 {
		t.Errorf("served %v and %d are left, want %v and 997", got, queue.Len(), want)
	}
}

// TestExplanationsTakeTurns: a pod is told why it waits however many of another namespace wait, and all are in the end.
func TestExplanationsTakeTurns(t *testing.T) {
	const crowd = 3*mostReasons + 1
	client := fake.NewClientset()
	add := func(namespace, name string) {
		t.Helper()
		claim := asking(1000)
		claim.Namespace, claim.Name = namespace, name
		pod := pending(t, "resourceClaims: [{name: gpu, resourceClaimName: "+name+"}]")
		pod.Namespace, pod.Name, pod.UID = namespace, name, types.UID(namespace+name)
		if err := errors.Join(client.Tracker().Add(pod), client.Tracker().Add(claim)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range crowd {
		add("crowded", fmt.Sprintf("pod-%03d", i))
	}
	add("quiet", "first")
	add("quiet", "second")
	c := newController(client, v1alpha1.SchedulerName, "me", silent(), prometheus.NewRegistry())
	ctx, stop := context.WithCancel(t.Context())
	defer c.known.stop()
	defer stop()
	if err := c.known.start(ctx); err != nil {
		t.Fatal(err)
	}
	var told []string // namespaces
	for look := 1; len(told) < crowd+2; look++ {
		client.ClearActions()
		c.explain(ctx)
		before := len(told)
		for _, action := range client.Actions() {
			if action.Matches("create", "events") {
				told = append(told, action.GetNamespace())
			}
		}
		if n := len(told) - before; n == 0 || n > mostReasons {
			t.Fatalf("look %d told %d pods", look, n)
		}
	}
	if first := strings.Join(told[:4], " "); strings.Count(first, "quiet") != 2 {
		t.Errorf("the first to be told are of %s", first)
	}
}
