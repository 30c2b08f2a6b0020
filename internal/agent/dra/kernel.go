package dra

import (
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// handlers asks for the handlers of runtime classes, and uses an answer for as long as one about the runtime.
type handlers struct {
	client kubernetes.Interface

	mu    sync.Mutex
	known map[string]handler
}

type handler struct {
	name  string
	asked time.Time
}

// of returns the handler of a runtime class, "" where that cannot be known: the class may be gone, and the API server
// away.
func (h *handlers) of(ctx context.Context, class string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known, ok := h.known[class]; ok && time.Since(known.asked) < runtimeAge {
		return known.name
	}
	ctx, cancel := context.WithTimeout(ctx, apiTime)
	defer cancel()
	object, err := h.client.NodeV1().RuntimeClasses().Get(ctx, class, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	if h.known == nil {
		h.known = map[string]handler{}
	}
	h.known[class] = handler{object.Handler, time.Now()}
	return object.Handler
}

// checkKernel refuses a share where its limits would not hold, because the container runs on a kernel of its own.
func (d *driver) checkKernel(ctx context.Context, u *use, allocations []allocation) error {
	v := u.view(requestsOf(allocations))
	shares := func(g allocation) bool { return slices.Contains(v, g.base) && !g.whole && !g.exclusive }
	if u.class == nil || !slices.ContainsFunc(allocations, shares) {
		return nil
	}
	if kernel := d.kernels.Own(u.class, d.handlers.of(ctx, *u.class)); kernel != "" {
		return fault("container %s of pod %s runs on a kernel of its own (runtime class %s), where no limit of a share would hold: use another runtime class",
			u.container, u.pod, kernel)
	}
	return nil
}
