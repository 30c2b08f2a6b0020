package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/explanation"
)

const (
	// idle is for how long the cluster is watched that nobody looks at. To begin again costs the API server a list.
	idle = 10 * time.Minute
	// firstLook is how long a reader waits for the cluster to be read; who comes back finds more of it read.
	firstLook = 8 * time.Second
)

// errReading is returned while the cluster is being read.
var errReading = errors.New("the cluster is being read")

// caches watch the cluster while somebody looks at it: on every replica, also on those that wait for the lease.
type caches struct {
	client kubernetes.Interface
	now    func() time.Time
	log    *slog.Logger
	// rested is called when watching has stopped because nobody looks.
	rested func()

	mu     sync.Mutex
	looked time.Time
	ended  bool
	watch  *watch // nil while nobody looks
}

// source returns what is known, and watches from now on.
func (c *caches) source(ctx context.Context) (explanation.Source, error) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return nil, fmt.Errorf("%w no more", errReading)
	}
	c.looked = c.now()
	if c.watch == nil {
		c.log.Info("somebody looks at the web page: watching the cluster for it")
		c.watch = newWatch(c.client)
	}
	w := c.watch
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), w.synced...) {
		return nil, errReading
	}
	return w, nil
}

// run stops watching where nobody looks, until the context ends, and then for good.
func (c *caches) run(ctx context.Context) {
	tick := time.NewTicker(idle / 10)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			c.rest(true)
			return
		case <-tick.C:
			c.rest(false)
		}
	}
}

// rest stops watching if nobody has looked for long, or for good.
func (c *caches) rest(forGood bool) {
	c.mu.Lock()
	w := c.watch
	c.ended = c.ended || forGood
	if w == nil || !forGood && c.now().Sub(c.looked) < idle {
		c.mu.Unlock()
		return
	}
	c.watch = nil
	c.mu.Unlock()
	w.stop()
	if !forGood {
		c.rested()
	}
}

// watch is the [explanation.Source] of informers.
type watch struct {
	slices, pods, others informers.SharedInformerFactory
	events               map[string]informers.SharedInformerFactory // by reason
	synced               []cache.InformerSynced
	stop                 func()
}

func newWatch(client kubernetes.Interface) *watch {
	factory := func(selector string) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(slim),
			informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = selector }))
	}
	w := &watch{
		slices: factory(resourcev1.ResourceSliceSelectorDriver + "=" + v1alpha1.Driver), pods: factory(explanation.PodsUnderWay), others: factory(""),
		events: map[string]informers.SharedInformerFactory{},
	}
	informed := []cache.SharedIndexInformer{
		w.slices.Resource().V1().ResourceSlices().Informer(), w.pods.Core().V1().Pods().Informer(),
		w.others.Core().V1().Nodes().Informer(), w.others.Resource().V1().ResourceClaims().Informer(),
	}
	all := []informers.SharedInformerFactory{w.slices, w.pods, w.others}
	for _, reason := range explanation.Reasons {
		w.events[reason] = factory("reason=" + reason)
		informed = append(informed, w.events[reason].Events().V1().Events().Informer())
		all = append(all, w.events[reason])
	}
	for _, one := range informed {
		w.synced = append(w.synced, one.HasSynced)
	}
	// It lasts longer than the request that began it.
	ctx, cancel := context.WithCancel(context.Background())
	for _, one := range all {
		one.Start(ctx.Done())
	}
	w.stop = func() {
		cancel()
		for _, one := range all {
			one.Shutdown()
		}
	}
	return w
}

// Slices implements [explanation.Source].
func (w *watch) Slices(context.Context) ([]*resourcev1.ResourceSlice, error) {
	all, err := w.slices.Resource().V1().ResourceSlices().Lister().List(labels.Everything())
	return all, said("slices", err)
}

// Nodes implements [explanation.Source].
func (w *watch) Nodes(context.Context) ([]*corev1.Node, error) {
	all, err := w.others.Core().V1().Nodes().Lister().List(labels.Everything())
	return all, said("nodes", err)
}

// Claims implements [explanation.Source].
func (w *watch) Claims(_ context.Context, namespace string) ([]*resourcev1.ResourceClaim, error) {
	all, err := w.others.Resource().V1().ResourceClaims().Lister().ResourceClaims(namespace).List(labels.Everything())
	return all, said("claims", err)
}

// Pods implements [explanation.Source].
func (w *watch) Pods(_ context.Context, namespace string) ([]*corev1.Pod, error) {
	all, err := w.pods.Core().V1().Pods().Lister().Pods(namespace).List(labels.Everything())
	return all, said("pods", err)
}

// Events implements [explanation.Source].
func (w *watch) Events(_ context.Context, namespace, reason string) ([]*eventsv1.Event, error) {
	all, err := w.events[reason].Events().V1().Events().Lister().Events(namespace).List(labels.Everything())
	return all, said("events", err)
}

func said(what string, err error) error {
	if err != nil {
		return fmt.Errorf("list the known %s: %w", what, err)
	}
	return nil
}
