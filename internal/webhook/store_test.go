package webhook

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
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

// TestLongListIsHandedOn has claims arrive in a list: each counts before the last one is there, and is counted once.
// Those of an earlier list that are gone count no more.
func TestLongListIsHandedOn(t *testing.T) {
	w := newWorld(t, "{plain: {}}")
	claims, ok := w.claims.(cache.TransformingStore)
	if !ok {
		t.Fatal("a reflector would keep the list")
	}
	memory := func() (sum uint64) {
		w.judge.quotas.accounts.existing("space", func(one *account) { sum = one.sum.Memory >> 30 })
		return sum
	}
	arrive := func(uids ...string) (all []any) {
		for _, uid := range uids {
			object := objectOf[resourcev1.ResourceClaim](t, strings.Replace(claimOf(uid, "4Gi"), "name: c", "namespace: space, name: c", 1))
			short, err := claims.Transformer()(object)
			if err != nil {
				t.Fatal(err)
			}
			if kept, ok := short.(*handed); !ok || kept.GetName() != "c"+uid || kept.GetNamespace() != "space" {
				t.Errorf("kept until the list is complete: %+v", short)
			}
			if again, err := claims.Transformer()(short); err != nil || again != short {
				t.Errorf("transformed twice: %v, %v", again, err)
			}
			all = append(all, short)
		}
		return all
	}
	all := arrive("1", "2", "3")
	if got := memory(); got != 12 {
		t.Errorf("%d GiB before the list is complete, want 12", got)
	}
	for _, uids := range [][]string{nil, {"2", "3", "4"}, {"4"}} {
		if uids != nil {
			all = arrive(uids...)
		}
		if err := w.claims.Replace(all, ""); err != nil {
			t.Fatal(err)
		}
		if got, want := memory(), uint64(4*len(all)); got != want {
			t.Errorf("%d GiB, want %d", got, want)
		}
	}
}
