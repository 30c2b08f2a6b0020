package webhook

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// TestStreamedList has a reflector read what exists as a stream, which is how Kubernetes 1.36 sends it, and then follow
// the changes.
func TestStreamedList(t *testing.T) {
	object := func(name, version string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, ResourceVersion: version}}
	}
	end := object("", "3")
	end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	stream := watch.NewFakeWithChanSize(10, false)
	stream.Add(object("a", "1"))
	stream.Add(object("b", "2"))
	stream.Action(watch.Bookmark, end)
	stream.Add(object("c", "4"))
	stream.Modify(object("a", "5"))
	stream.Delete(object("b", "6"))

	heard := make(chan string, 10)
	say := func(what string) func(brief[int]) {
		return func(b brief[int]) { heard <- what + " " + b.namespace + "/" + b.name }
	}
	s := &store[int]{
		read: func(metav1.Object) (int, error) { return 0, nil },
		put:  say("put"), drop: say("drop"),
		replace: func(all []brief[int]) {
			for _, b := range all {
				say("replaced")(b)
			}
		},
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			t.Error("it is listed, not streamed")
			return &corev1.ConfigMapList{}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return stream, nil },
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cache.NewReflectorWithOptions(source, &corev1.ConfigMap{}, s, cache.ReflectorOptions{}).RunWithContext(ctx)
	}()
	listed := []string{<-heard, <-heard}
	slices.Sort(listed)
	got := append(listed, <-heard, <-heard, <-heard)
	if want := []string{"replaced n/a", "replaced n/b", "put n/c", "put n/a", "drop n/b"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if !s.synced() {
		t.Error("it is not complete")
	}
	stop()
	<-ended
}
