package extender

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/divvy-gpu/divvy/internal/takeover"
)

// store is where a reflector puts the objects of one kind: into the core, at once. A pod that was put is known before the next
// event is read.
type store[T metav1.Object] struct {
	trim func(T) T
	put  func(T)
	drop func(namespace, name string)
	keep func(list map[string]bool)

	filled atomic.Bool
}

// Transformer implements [cache.TransformingStore]: of a long list no object is kept whole.
func (s *store[T]) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		if whole, ok := object.(T); ok {
			return s.trim(whole), nil
		}
		return object, nil
	}
}

// Add implements [cache.ReflectorStore].
func (s *store[T]) Add(object any) error {
	is, ok := object.(T)
	if !ok {
		return fmt.Errorf("read an object of the cluster: it is a %T", object)
	}
	s.put(s.trim(is))
	return nil
}

// Update implements [cache.ReflectorStore].
func (s *store[T]) Update(object any) error { return s.Add(object) }

// Delete implements [cache.ReflectorStore].
func (s *store[T]) Delete(object any) error {
	is, ok := object.(T)
	if !ok {
		return fmt.Errorf("read an object of the cluster: it is a %T", object)
	}
	s.drop(is.GetNamespace(), is.GetName())
	return nil
}

// Replace implements [cache.ReflectorStore].
func (s *store[T]) Replace(objects []any, _ string) error {
	list := make(map[string]bool, len(objects))
	for _, object := range objects {
		if err := s.Add(object); err != nil {
			return err
		}
		if is, ok := object.(T); ok {
			list[is.GetNamespace()+"/"+is.GetName()] = true
		}
	}
	s.keep(list)
	s.filled.Store(true)
	return nil
}

// Resync implements [cache.ReflectorStore].
func (s *store[T]) Resync() error { return nil }

// following has the core follow the cluster.
type following struct {
	core        *core
	gone        takeover.Gone // pods
	pods, nodes *cache.Reflector
	running     sync.WaitGroup
	synced      []cache.InformerSynced
}

func follow(client kubernetes.Interface, c *core) *following {
	f := &following{core: c}
	pods := &store[*corev1.Pod]{trim: trimPod, put: c.setPod, drop: f.dropPod, keep: c.keepPods}
	nodes := &store[*corev1.Node]{
		trim: trimNode, put: c.setNode, drop: func(_, name string) { c.dropNode(name) }, keep: c.keepNodes,
	}
	f.pods = reflector(client, client.CoreV1().Pods(metav1.NamespaceAll), &corev1.Pod{}, pods)
	f.nodes = reflector(client, client.CoreV1().Nodes(), &corev1.Node{}, nodes)
	f.synced = []cache.InformerSynced{pods.filled.Load, nodes.filled.Load}
	return f
}

// lister reads and watches the objects of one kind.
type lister[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func reflector[L runtime.Object](client kubernetes.Interface, objects lister[L], kind runtime.Object, into cache.ReflectorStore) *cache.Reflector {
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, options)
		},
		WatchFuncWithContext: objects.Watch,
	}
	return cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(source, client), kind, into, cache.ReflectorOptions{Name: fmt.Sprintf("%T", kind)})
}

// start follows until the context ends.
func (f *following) start(ctx context.Context) {
	f.running.Go(func() { f.pods.RunWithContext(ctx) })
	f.running.Go(func() { f.nodes.RunWithContext(ctx) })
}

// wait waits until everything that there was has been read.
func (f *following) wait(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), f.synced...)
}

func (f *following) known() bool { return f.synced[0]() && f.synced[1]() }

// split takes a key apart.
func split(key string) (namespace, name string) {
	namespace, name, _ = strings.Cut(key, "/")
	return namespace, name
}
