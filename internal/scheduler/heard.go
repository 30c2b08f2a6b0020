package scheduler

import (
	"context"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/internal/takeover"
)

// heard are the revisions of claims that events have told of, by namespace and name. Anybody may call its methods.
type heard struct {
	gone      takeover.Gone
	mutex     sync.Mutex
	revisions map[string]string
}

func (h *heard) set(before, after *resourcev1.ResourceClaim) {
	if after == nil {
		h.gone.Note(before.UID)
	}
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

// behind is a claim of which events have not told what a list says, "" for none; gone are those of which they told that they are gone.
func (h *heard) behind(list *metav1.PartialObjectMetadataList, gone map[types.UID]bool) string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return takeover.Behind(list, gone, h.revisions, func(revision string) string { return revision })
}

// reached reports whether events have told of a claim at least what it was at a revision; known is false for one of which they
// told nothing, or that it is gone.
func (h *heard) reached(key, revision string) (reached, known bool) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	at, known := h.revisions[key]
	return known && !takeover.Older(at, revision), known
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

// CatchUp waits until the engine has heard of all that was written of claims before it was called. list asks the API server, and no
// cache. late is called when that takes longer than a second, with what is waited for. The error is the context's. Anybody may call it.
func (e *Engine) CatchUp(ctx context.Context, list func(context.Context) (*metav1.PartialObjectMetadataList, error), late func(why string)) error {
	return e.heard.gone.CatchUp(ctx, "claim", list, e.heard.behind, late)
}
