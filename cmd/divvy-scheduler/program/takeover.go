package program

import (
	"context"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// listLimit bounds one question which claims there are.
const listLimit = 30 * time.Second

// catchUp waits until this scheduler knows all that the leader before it has written of claims. That one has stopped to write:
// the lease was got later than it could be held.
func (a *adapter) catchUp() error {
	claims := a.objects.Resource(resourcev1.SchemeGroupVersion.WithResource("resourceclaims"))
	return a.engine.CatchUp(a.ctx, func(ctx context.Context) (*metav1.PartialObjectMetadataList, error) {
		ctx, cancel := context.WithTimeout(ctx, listLimit)
		defer cancel()
		return claims.List(ctx, metav1.ListOptions{})
	}, func(why string) {
		klog.FromContext(a.ctx).Info("Nothing is placed until all claims are known", "waits", why)
	})
}
