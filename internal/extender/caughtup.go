package extender

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/internal/takeover"
)

// behind is a pod of which watches have not told what a list says, "" for none; gone are those of which they told that they are gone.
func (c *core) behind(list *metav1.PartialObjectMetadataList, gone map[types.UID]bool) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return takeover.Behind(list, gone, c.pods, func(pod *corev1.Pod) string { return pod.ResourceVersion })
}

// catchUp waits until the core knows all that was written of pods before it was called. list asks the API server, and no cache; late is
// told what is waited for. The error is the context's.
func (f *following) catchUp(ctx context.Context, list func(context.Context) (*metav1.PartialObjectMetadataList, error), late func(why string)) error {
	return f.gone.CatchUp(ctx, "pod", list, f.core.behind, late)
}

// dropPod takes in that a watch told of a pod that it is gone. Those that a new list has no more are not noted: the next list of catchUp
// has them no more either.
func (f *following) dropPod(namespace, name string) {
	if pod := f.core.pod(namespace, name); pod != nil {
		f.gone.Note(pod.UID)
	}
	f.core.dropPod(namespace, name)
}
