package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/queue"
)

var queueResource = schema.GroupVersionResource{Group: v1alpha1.Domain, Version: "v1alpha1", Resource: v1alpha1.QueueResources}

// queueKind is an object of the kind that is followed.
func queueKind() *unstructured.Unstructured {
	kind := &unstructured.Unstructured{}
	kind.SetGroupVersionKind(queueResource.GroupVersion().WithKind(v1alpha1.KindQueue))
	return kind
}

// queues knows the cluster's queues. Of their status, which changes all the time, it keeps nothing.
type queues struct {
	// followed is true where Divvy's scheduler serves queues.
	followed bool

	mu   sync.Mutex // guards what follows
	all  map[string]generation
	tree *queue.Tree // nil where a queue has changed since
}

// generation is a queue's specification. It has changed if its number has.
type generation struct {
	number int64
	spec   v1alpha1.QueueSpec
}

// now returns the tree of all queues, which nobody changes. It is nil where queues are not followed.
func (q *queues) now() *queue.Tree {
	if !q.followed {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.tree == nil {
		q.tree = queue.NewTree(q.specs())
	}
	return q.tree
}

// others are all queues but one.
func (q *queues) others(name string) []queue.Spec {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.DeleteFunc(q.specs(), func(s queue.Spec) bool { return s.Name == name })
}

// specs are those of all queues, by name. The caller holds the lock.
func (q *queues) specs() []queue.Spec {
	all := make([]queue.Spec, 0, len(q.all))
	for _, name := range slices.Sorted(maps.Keys(q.all)) {
		all = append(all, queue.Spec{Name: name, QueueSpec: q.all[name].spec})
	}
	return all
}

// store returns where queues are put.
func (q *queues) store() *store[generation] {
	return &store[generation]{
		read: readGeneration,
		put: func(b brief[generation]) {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.put(b)
		},
		drop: func(b brief[generation]) {
			q.mu.Lock()
			defer q.mu.Unlock()
			delete(q.all, b.name)
			q.tree = nil
		},
		replace: func(all []brief[generation]) {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.all, q.tree = nil, nil
			for _, b := range all {
				q.put(b)
			}
		},
	}
}

// put takes a queue up. The caller holds the lock.
func (q *queues) put(b brief[generation]) {
	if had, ok := q.all[b.name]; ok && b.of.number != 0 && had.number == b.of.number {
		return
	}
	if q.all == nil {
		q.all = make(map[string]generation)
	}
	q.all[b.name], q.tree = b.of, nil
}

// readGeneration takes what is kept of a queue. One that does not read has nothing and no namespaces: the scheduler says so.
func readGeneration(object metav1.Object) (generation, error) {
	is, err := as[*unstructured.Unstructured](object)
	if err != nil {
		return generation{}, err
	}
	text, err := json.Marshal(is.Object)
	if err != nil {
		return generation{}, fmt.Errorf("read queue %s: %w", is.GetName(), err)
	}
	of, err := v1alpha1.DecodeQueue(text)
	if err != nil {
		return generation{number: is.GetGeneration()}, nil //nolint:nilerr // one queue that does not read must not hide the others
	}
	return generation{is.GetGeneration(), of.Spec}, nil
}

// optional reads objects of a kind that the API server may not have. Then there are none.
type optional struct{ dynamic.ResourceInterface }

// List implements [lister].
func (o optional) List(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list, err := o.ResourceInterface.List(ctx, options)
	if apierrors.IsNotFound(err) {
		return &unstructured.UnstructuredList{}, nil
	}
	return list, err
}

// Watch implements [lister]. A reflector that is refused a streamed list asks for a plain one.
func (o optional) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := o.ResourceInterface.Watch(ctx, options)
	if apierrors.IsNotFound(err) && options.SendInitialEvents != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: v1alpha1.Domain, Kind: v1alpha1.KindQueue}, "", nil)
	}
	return w, err
}
