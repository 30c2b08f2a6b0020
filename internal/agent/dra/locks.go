package dra

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// keyedLocks are locks by claim. The zero value is ready.
type keyedLocks struct {
	mu    sync.Mutex
	locks map[types.UID]*keyedLock
}

type keyedLock struct {
	mu    sync.Mutex
	users int
}

// lock takes the lock of a key and returns what gives it back.
func (k *keyedLocks) lock(key types.UID) (unlock func()) {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = map[types.UID]*keyedLock{}
	}
	l := k.locks[key]
	if l == nil {
		l = &keyedLock{}
		k.locks[key] = l
	}
	l.users++
	k.mu.Unlock()
	l.mu.Lock()
	return func() {
		l.mu.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.locks, key)
		}
	}
}
