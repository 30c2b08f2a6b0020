package controller

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/client-go/tools/cache"
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
