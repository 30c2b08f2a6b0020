package faults

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// againAfter is the time between two tries to watch while the API server is away.
const againAfter = 50 * time.Millisecond

// followed is one kind of objects that a record follows.
type followed struct {
	watch func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
	// list tells what is there, and the revision of that.
	list func(ctx context.Context) (revision string, err error)
	// change is told of each change.
	change func(kind watch.EventType, object runtime.Object)
}

// follow has the record follow pods and claims until the context ends. A watch goes on after the last revision that it told of.
// An API server that was started again does not know what was before, so there it lists instead: what came and went in between,
// in the moment before that server's end, is not seen.
func (r *record) follow(ctx context.Context, client kubernetes.Interface) {
	pods, claims := client.CoreV1().Pods(namespace), client.ResourceV1().ResourceClaims(namespace)
	for _, one := range []followed{
		{pods.Watch, func(ctx context.Context) (string, error) {
			list, err := pods.List(ctx, metav1.ListOptions{})
			if err != nil {
				return "", err
			}
			r.listedPods(list)
			return list.ResourceVersion, nil
		}, r.changedPod},
		{claims.Watch, func(ctx context.Context) (string, error) {
			list, err := claims.List(ctx, metav1.ListOptions{})
			if err != nil {
				return "", err
			}
			r.listedClaims(list)
			return list.ResourceVersion, nil
		}, r.changedClaim},
	} {
		go one.run(ctx)
	}
}

func (f followed) run(ctx context.Context) {
	last := ""
	for ctx.Err() == nil {
		var err error
		if last == "" {
			last, err = f.list(ctx)
		}
		if err == nil {
			last, err = f.until(ctx, last)
		}
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			last = ""
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(againAfter):
		}
	}
}

// until follows one watch to its end, and returns the last revision that it told of.
func (f followed) until(ctx context.Context, last string) (string, error) {
	w, err := f.watch(ctx, metav1.ListOptions{ResourceVersion: last, AllowWatchBookmarks: true})
	if err != nil {
		return last, fmt.Errorf("watch: %w", err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		object, ok := event.Object.(metav1.Object)
		if event.Type == watch.Error || !ok {
			return last, apierrors.FromObject(event.Object)
		}
		if event.Type != watch.Bookmark {
			f.change(event.Type, event.Object)
		}
		last = object.GetResourceVersion()
	}
	return last, nil
}

func (r *record) changedPod(kind watch.EventType, object runtime.Object) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.seen = revisionOf(p.ResourceVersion)
	r.pod(p, r.seen, kind == watch.Deleted)
}

func (r *record) changedClaim(kind watch.EventType, object runtime.Object) {
	c, ok := object.(*resourcev1.ResourceClaim)
	if !ok {
		return
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	name, revision := c.Name, revisionOf(c.ResourceVersion)
	if kind == watch.Deleted {
		c = nil
	}
	r.claim(name, c, revision)
}

func (r *record) listedPods(list *corev1.PodList) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	there := map[string]*corev1.Pod{}
	for i := range list.Items {
		there[list.Items[i].Name] = &list.Items[i]
	}
	for name, known := range r.pods {
		if there[name] == nil || there[name].UID != known.UID {
			r.pod(known, r.seen, true)
		}
	}
	r.seen = revisionOf(list.ResourceVersion)
	for _, p := range there {
		r.pod(p, r.seen, false)
	}
}

func (r *record) listedClaims(list *resourcev1.ResourceClaimList) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.gaps++
	there := map[string]*resourcev1.ResourceClaim{}
	for i := range list.Items {
		there[list.Items[i].Name] = &list.Items[i]
	}
	revision := revisionOf(list.ResourceVersion)
	for name := range r.claims {
		if there[name] == nil {
			r.claim(name, nil, revision)
		}
	}
	for name, c := range there {
		if known := r.claims[name]; known == nil || known.ResourceVersion != c.ResourceVersion {
			r.claim(name, c, revisionOf(c.ResourceVersion))
		}
	}
}
