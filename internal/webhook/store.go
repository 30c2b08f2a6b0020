package webhook

import (
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
	// put and drop hand on what was added or changed, and what is gone. Replace hands on everything there is.
	put, drop func(brief[T])
	replace   func([]brief[T])
	// eager hands each object of a list on as it arrives, so that the whole of a long list is at no time in memory. To
	// replace then gets these objects as handed ones.
	eager bool

	filled atomic.Bool
}

// brief is what is left of an object. Of its metadata it has what a reflector reads.
type brief[T any] struct {
	metav1.Object   // bare
	namespace, name string
	version         string
	uid             types.UID
	handed          bool // to put already, and without what was read of it
	of              T
}

// bare is metadata without anything in it. Nobody changes it.
var bare = &metav1.ObjectMeta{}

// GetNamespace implements [metav1.Object].
func (b brief[T]) GetNamespace() string { return b.namespace }

// GetName implements [metav1.Object].
func (b brief[T]) GetName() string { return b.name }

// GetResourceVersion implements [metav1.Object].
func (b brief[T]) GetResourceVersion() string { return b.version }

// GetUID implements [metav1.Object].
func (b brief[T]) GetUID() types.UID { return b.uid }

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
	short = brief[T]{Object: bare, namespace: full.GetNamespace(), name: full.GetName(), version: full.GetResourceVersion(), uid: full.GetUID(), of: of}
	if short.uid == "" {
		short.uid = types.UID(short.name)
	}
	return short, nil
}

// Transformer implements [cache.TransformingStore]: a reflector applies it to each object of a list as it arrives.
func (s *store[T]) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		short, err := s.shorten(object)
		if err != nil || !s.eager || short.handed {
			return short, err
		}
		s.put(short)
		return brief[T]{Object: bare, namespace: short.namespace, name: short.name, version: short.version, uid: short.uid, handed: true}, nil
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

// synced reports whether everything that existed at the start has been handed on.
func (s *store[T]) synced() bool { return s.filled.Load() }
