package webhook

import (
	"maps"
	"sync"

	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// runtimes knows the handlers of the cluster's RuntimeClasses. A handler never changes; a class may be made anew.
type runtimes struct {
	mu       sync.Mutex
	handlers map[string]string // by the class's name; replaced as a whole
}

// all returns the handlers by the names of the classes. Nobody changes the map.
func (r *runtimes) all() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.handlers
}

func (r *runtimes) change(apply func(map[string]string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := maps.Clone(r.handlers)
	if next == nil {
		next = make(map[string]string)
	}
	apply(next)
	r.handlers = next
}

// store returns where RuntimeClasses are put.
func (r *runtimes) store() *store[string] {
	return &store[string]{
		read: func(object metav1.Object) (string, error) {
			class, err := as[*nodev1.RuntimeClass](object)
			if err != nil {
				return "", err
			}
			return class.Handler, nil
		},
		put: func(c brief[string]) {
			r.change(func(handlers map[string]string) { handlers[c.name] = c.of })
		},
		drop: func(c brief[string]) {
			r.change(func(handlers map[string]string) { delete(handlers, c.name) })
		},
		replace: func(all []brief[string]) {
			r.change(func(handlers map[string]string) {
				clear(handlers)
				for _, c := range all {
					handlers[c.name] = c.of
				}
			})
		},
	}
}
