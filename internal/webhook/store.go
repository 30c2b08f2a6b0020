package webhook

import (
	"crypto/sha256"
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// store is where a reflector puts the objects of one kind. It keeps none of them: what counting needs of an object is
// handed on, and the rest is forgotten before the next one arrives. So the server's memory does not depend on how large
// the cluster's objects are.
type store[T any] struct {
	// read takes of an object what is needed.
	read func(metav1.Object) (T, error)
	// named is true where an object's key stands for its namespace and name instead of its UID.
	named bool
	// put and drop hand on what was added or changed, and what is gone. Replace hands on everything there is.
	put, drop func(brief[T])
	replace   func([]brief[T])
	// keep is there instead of replace where lists are long. Each object of a list is then put as it arrives, so that what
	// was read of all of them is at no time in memory; keep drops those that are not in the list.
	keep func(list map[key]bool)

	filled atomic.Bool
}

// key stands for an object's UID, or its namespace and name. It holds no pointer, so that the garbage collector does not look into what is kept of
// very many objects: reviews would wait for it.
type key [16]byte

func keyOf(uid types.UID) key {
	sum := sha256.Sum256([]byte(uid))
	return key(sum[:16])
}

func keyOfName(namespace, name string) key { return keyOf(types.UID(namespace + "/" + name)) }

// brief is what is left of an object. Of its metadata it has what a reflector reads.
type brief[T any] struct {
	metav1.Object   // bare
	namespace, name string
	version         string
	id              key
	of              T
}

// handed is what is left of an object that was put while its list is not complete.
type handed struct {
	metav1.Object   // bare
	namespace, name string
	id              key
}

// GetNamespace implements [metav1.Object].
func (h *handed) GetNamespace() string { return h.namespace }

// GetName implements [metav1.Object].
func (h *handed) GetName() string { return h.name }

// bare is metadata without anything in it. Nobody changes it.
var bare = &metav1.ObjectMeta{}

// GetNamespace implements [metav1.Object].
func (b brief[T]) GetNamespace() string { return b.namespace }

// GetName implements [metav1.Object].
func (b brief[T]) GetName() string { return b.name }

// GetResourceVersion implements [metav1.Object].
func (b brief[T]) GetResourceVersion() string { return b.version }

// shorten reads what is kept of an object.
func (s *store[T]) shorten(object any) (short brief[T], err error) {
	if short, ok := object.(brief[T]); ok {
		return short, nil
	}
	full, err := meta.Accessor(object)
	if err != nil {
		return short, fmt.Errorf("read an object of the cluster: %w", err)
	}
	of, err := s.read(full)
	if err != nil {
		return short, err
	}
	short = brief[T]{Object: bare, namespace: full.GetNamespace(), name: full.GetName(), version: full.GetResourceVersion(), of: of}
	uid := full.GetUID()
	switch {
	case s.named:
		short.id = keyOfName(short.namespace, short.name)
		return short, nil
	case uid == "":
		uid = types.UID(short.name)
	}
	short.id = keyOf(uid)
	return short, nil
}

// Transformer implements [cache.TransformingStore]: a reflector applies it to each object of a list as it arrives.
func (s *store[T]) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		if s.keep == nil {
			return s.shorten(object)
		}
		if _, ok := object.(*handed); ok {
			return object, nil
		}
		short, err := s.shorten(object)
		if err != nil {
			return nil, err
		}
		s.put(short)
		return &handed{bare, short.namespace, short.name, short.id}, nil
	}
}

func (s *store[T]) hand(object any, to func(brief[T])) error {
	short, err := s.shorten(object)
	if err != nil {
		return err
	}
	to(short)
	return nil
}

// Add implements [cache.ReflectorStore].
func (s *store[T]) Add(object any) error { return s.hand(object, s.put) }

// Update implements [cache.ReflectorStore].
func (s *store[T]) Update(object any) error { return s.hand(object, s.put) }

// Delete implements [cache.ReflectorStore].
func (s *store[T]) Delete(object any) error { return s.hand(object, s.drop) }

// Resync implements [cache.ReflectorStore].
func (s *store[T]) Resync() error { return nil }

// Replace implements [cache.ReflectorStore].
func (s *store[T]) Replace(objects []any, _ string) error {
	if s.keep != nil {
		return s.keepList(objects)
	}
	all := make([]brief[T], 0, len(objects))
	for _, object := range objects {
		if err := s.hand(object, func(b brief[T]) { all = append(all, b) }); err != nil {
			return err
		}
	}
	s.replace(all)
	s.filled.Store(true)
	return nil
}

// keepList puts what was not put yet, and has the rest dropped.
func (s *store[T]) keepList(objects []any) error {
	list := make(map[key]bool, len(objects))
	for _, object := range objects {
		if known, ok := object.(*handed); ok {
			list[known.id] = true
			continue
		}
		err := s.hand(object, func(b brief[T]) {
			list[b.id] = true
			s.put(b)
		})
		if err != nil {
			return err
		}
	}
	s.keep(list)
	s.filled.Store(true)
	return nil
}

// synced reports whether everything that existed at the start has been handed on.
func (s *store[T]) synced() bool { return s.filled.Load() }
