package extender

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

const (
	// askAgain is the time between two looks whether watches have told of all, and listAgain between two questions what there is:
	// what went in between is not there to be heard of.
	askAgain  = 10 * time.Millisecond
	listAgain = time.Second
)

// behind is a pod of which watches have not told what a list says, "" for none.
func (c *core) behind(list *metav1.PartialObjectMetadataList) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	there := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		key := list.Items[i].Namespace + "/" + list.Items[i].Name
		there[key] = true
		if pod := c.pods[key]; pod == nil || older(pod.ResourceVersion, list.Items[i].ResourceVersion) {
			return key
		}
	}
	for key, pod := range c.pods {
		if !there[key] && older(pod.ResourceVersion, list.ResourceVersion) {
			return key
		}
	}
	return ""
}

// older reports whether a revision is before another one. What is no revision is.
func older(revision, than string) bool {
	order, err := resourceversion.CompareResourceVersion(revision, than)
	return err != nil || order < 0
}

// catchUp waits until the core knows all that was written of pods before it was called. Watches alone do not say that: those of a
// replica that follows may be behind by as long as they were interrupted, and a GPU that was given meanwhile looks free. list asks
// the API server, and no cache; late is told what is waited for. The error is the context's.
func (c *core) catchUp(ctx context.Context, list func(context.Context) (*metav1.PartialObjectMetadataList, error), late func(why string)) error {
	for {
		all, err := list(ctx)
		why := ""
		if err != nil {
			why = err.Error()
		}
		for end := time.Now().Add(listAgain); time.Now().Before(end); {
			if err == nil {
				if why = c.behind(all); why == "" {
					return nil
				}
				why = fmt.Sprintf("pod %s has changed", why)
			}
			timer := time.NewTimer(askAgain)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return ctx.Err()
			}
		}
		late(why)
	}
}
