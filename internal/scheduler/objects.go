package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// objectsPoll is the time between two looks whether the API serves a kind: a definition that is installed while the scheduler
// runs is noticed so late at most.
const objectsPoll = 10 * time.Second

// Served tells what an API serves.
type Served interface {
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

// objectsState says what is known of a kind's objects.
type objectsState uint8

// The states.
const (
	objectsKnown objectsState = iota
	objectsUnserved
	objectsUnread
)

// objects follows the objects of a kind that the API may serve or not.
type objects struct {
	resource schema.GroupVersionResource
	served   Served
	client   dynamic.Interface
	// transform leaves of an object what is read of it; it may be nil.
	transform cache.TransformFunc
	// told hears of each object, nil for what was not or is not there; state of what is known, with the reason where it is not
	// all; forget that nothing of what was told is so any more.
	told   func(before, after *unstructured.Unstructured)
	state  func(state objectsState, why string)
	forget func()
}

// run follows until the context ends.
func (o *objects) run(ctx context.Context) {
	var stop func() // nil while nothing is followed
	ticker := time.NewTicker(objectsPoll)
	defer ticker.Stop()
	for {
		is, err := o.isServed()
		switch {
		case err != nil && stop != nil: // what is known stays
		case err != nil:
			o.unread(err)
		case is && stop == nil:
			stop = o.begin(ctx)
		case !is:
			if stop != nil {
				stop()
				stop = nil
			}
			o.state(objectsUnserved, fmt.Sprintf("is of %s, which this cluster does not serve", o.resource.GroupVersion()))
		}
		select {
		case <-ctx.Done():
			if stop != nil {
				stop()
			}
			return
		case <-ticker.C:
		}
	}
}

func (o *objects) unread(err error) { o.state(objectsUnread, "cannot be read: "+oneLine(err)) }

// begin follows the objects. What it returns ends that, and forgets them.
func (o *objects) begin(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.follow(ctx)
	}()
	return func() {
		cancel()
		<-done
		o.forget()
	}
}

// isServed reports whether the API has objects of the kind.
func (o *objects) isServed() (bool, error) {
	list, err := o.served.ServerResourcesForGroupVersion(o.resource.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for i := range list.APIResources {
		if list.APIResources[i].Name == o.resource.Resource {
			return true, nil
		}
	}
	return false, nil
}

// follow hears of the objects until the context ends.
func (o *objects) follow(ctx context.Context) {
	informer := dynamicinformer.NewFilteredDynamicInformer(o.client, o.resource, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	heard, err := informer.AddEventHandler(handler(o.told))
	if o.transform != nil {
		err = errors.Join(err, informer.SetTransform(o.transform))
	}
	err = errors.Join(err, informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		klog.FromContext(ctx).V(2).Info("Objects not read", "resource", o.resource, "err", err)
		if !heard.HasSynced() && ctx.Err() == nil {
			o.unread(err)
		}
	}))
	if err != nil {
		o.unread(err)
		return
	}
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), heard.HasSynced) {
		o.state(objectsKnown, "")
	}
	running.Wait()
}

// oneLine is an error fit for a reason.
func oneLine(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "…"
	}
	return text
}
