package webhook

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bounds holds what objects of one kind, such as quotas, say of GPUs, by namespace. A review of a namespace where none
// says anything takes no lock.
type bounds[T any] struct {
	compare func(a, b T) int
	read    func(metav1.Object) ([]T, error)

	mu       sync.Mutex // guards changes
	byObject map[string]map[string][]T
	// byNamespace has what all objects of a namespace say, sorted, where there is anything.
	byNamespace sync.Map
}

func newBounds[T any](compare func(a, b T) int, read func(metav1.Object) ([]T, error)) *bounds[T] {
	return &bounds[T]{compare: compare, read: read, byObject: make(map[string]map[string][]T)}
}

// of returns what is said in a namespace. Nobody changes it.
func (b *bounds[T]) of(namespace string) []T {
	all, _ := b.byNamespace.Load(namespace)
	found, _ := all.([]T)
	return found
}

// store returns where the objects are put.
func (b *bounds[T]) store() *store[[]T] {
	return &store[[]T]{
		read: b.read,
		put:  func(object brief[[]T]) { b.set(object.namespace, object.name, object.of) },
		drop: func(object brief[[]T]) { b.set(object.namespace, object.name, nil) },
		replace: func(all []brief[[]T]) {
			for _, gone := range b.except(all) {
				b.set(gone[0], gone[1], nil)
			}
			for _, object := range all {
				b.set(object.namespace, object.name, object.of)
			}
		},
	}
}

// except returns namespace and name of the objects that are not among these.
func (b *bounds[T]) except(all []brief[[]T]) [][2]string {
	present := make(map[[2]string]bool, len(all))
	for _, object := range all {
		present[[2]string{object.namespace, object.name}] = true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var gone [][2]string
	for namespace, objects := range b.byObject {
		for name := range objects {
			if key := [2]string{namespace, name}; !present[key] {
				gone = append(gone, key)
			}
		}
	}
	return gone
}

// set notes what an object says; nothing means that it says nothing of GPUs any more.
func (b *bounds[T]) set(namespace, name string, says []T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	objects := b.byObject[namespace]
	switch {
	case len(says) > 0 && objects == nil:
		objects = make(map[string][]T)
		b.byObject[namespace] = objects
		fallthrough
	case len(says) > 0:
		objects[name] = says
	default:
		delete(objects, name)
	}
	if len(objects) == 0 {
		delete(b.byObject, namespace)
		b.byNamespace.Delete(namespace)
		return
	}
	var all []T
	for _, says := range objects {
		all = append(all, says...)
	}
	slices.SortStableFunc(all, b.compare)
	b.byNamespace.Store(namespace, all)
}
