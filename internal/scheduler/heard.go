package scheduler

import (
	"context"
	"fmt"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

const (
	// lookAgain is the time between two looks whether the events have come, and listAgain between two questions what is there:
	// what went in between is not there to be heard of.
	lookAgain = 10 * time.Millisecond
	listAgain = time.Second
)

// heard are the revisions of claims that events have told of, by namespace and name. Anybody may call its methods.
type heard struct {
	mutex     sync.Mutex
	revisions map[string]string
}

func (h *heard) set(before, after *resourcev1.ResourceClaim) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.revisions == nil {
		h.revisions = map[string]string{}
	}
	if after == nil {
		delete(h.revisions, before.Namespace+"/"+before.Name)
	} else {
		h.revisions[after.Namespace+"/"+after.Name] = after.ResourceVersion
	}
}

// behind is a claim of which events have not told what a list says, "" for none.
func (h *heard) behind(list *metav1.PartialObjectMetadataList) string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	there := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		key := list.Items[i].Namespace + "/" + list.Items[i].Name
		there[key] = true
		if older(h.revisions[key], list.Items[i].ResourceVersion) {
			return key
		}
	}
	for key, revision := range h.revisions {
		if !there[key] && older(revision, list.ResourceVersion) {
			return key
		}
	}
	return ""
}

// reached reports whether events have told of a claim at least what it was at a revision; known is false for one of which they
// told nothing, or that it is gone.
func (h *heard) reached(key, revision string) (reached, known bool) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	at, known := h.revisions[key]
	return known && !older(at, revision), known
}

// Settle waits until events have told that the claims of a unit that was taken back have nothing of it any more. Before that, what
// it was given may yet be told, and would end the note of what is given anew. Anybody may call it.
func (e *Engine) Settle(ctx context.Context, w *Writer, u *Unit) error {
	return repeat(ctx, func() bool {
		for key, revision := range u.left {
			reached, known := e.heard.reached(key, revision)
			if reached || revision == "" {
				continue
			}
			if known || !w.gone(ctx, key) {
				return false
			}
		}
		return true
	})
}

// older reports whether a revision is before another one. What is no revision is.
func older(revision, than string) bool {
	order, err := resourceversion.CompareResourceVersion(revision, than)
	return err != nil || order < 0
}

// CatchUp waits until the engine has heard of all that was written of claims before it was called. Informers alone do not say
// that: those of a scheduler that follows may be behind by as long as their watch was interrupted, and a GPU that was given
// meanwhile looks free. list asks the API server, and no cache. late is called when that takes longer than a second, with what
// is waited for. The error is the context's. Anybody may call it.
func (e *Engine) CatchUp(ctx context.Context, list func(context.Context) (*metav1.PartialObjectMetadataList, error), late func(why string)) error {
	for {
		all, err := list(ctx)
		why := ""
		if err != nil {
			why = err.Error()
		}
		timer := time.NewTimer(listAgain)
		for waits := true; waits; {
			if err == nil {
				if why = e.heard.behind(all); why == "" {
					timer.Stop()
					return nil
				}
				why = fmt.Sprintf("claim %s has changed", why)
			}
			look := time.NewTimer(lookAgain)
			select {
			case <-look.C:
			case <-timer.C:
				waits = false
			case <-ctx.Done():
				return ctx.Err()
			}
			look.Stop()
		}
		late(why)
	}
}
