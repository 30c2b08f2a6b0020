package webhook

import (
	"context"
	"errors"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// known is the server's view of the cluster: what the driver published, all claims, and all quotas.
type known struct {
	slices, others informers.SharedInformerFactory
	synced         []cache.InformerSynced
}

func newKnown(client kubernetes.Interface) *known {
	k := &known{
		slices: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(lighten),
			informers.WithTweakListOptions(func(o *metav1.ListOptions) {
				o.FieldSelector = resourcev1.ResourceSliceSelectorDriver + "=" + v1alpha1.Driver
			})),
		others: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(lighten)),
	}
	k.synced = []cache.InformerSynced{
		k.slices.Resource().V1().ResourceSlices().Informer().HasSynced,
		k.others.Resource().V1().ResourceClaims().Informer().HasSynced,
		k.others.Core().V1().ResourceQuotas().Informer().HasSynced,
	}
	return k
}

// lighten drops from cached objects what nobody reads here.
func lighten(object any) (any, error) {
	if m, err := meta.Accessor(object); err == nil {
		m.SetManagedFields(nil)
	}
	return object, nil
}

func (k *known) start(ctx context.Context) {
	k.slices.Start(ctx.Done())
	k.others.Start(ctx.Done())
}

// wait returns once everything has been read.
func (k *known) wait(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), k.synced...) {
		return errors.New("stopped before the cluster's GPUs, claims and quotas were read")
	}
	return nil
}

// shutdown waits until nothing is read any more; the context of start has ended.
func (k *known) shutdown() {
	k.slices.Shutdown()
	k.others.Shutdown()
}

func (k *known) published() resourcelisters.ResourceSliceLister {
	return k.slices.Resource().V1().ResourceSlices().Lister()
}

func (k *known) claims() resourcelisters.ResourceClaimLister {
	return k.others.Resource().V1().ResourceClaims().Lister()
}

func (k *known) quotas() corelisters.ResourceQuotaLister {
	return k.others.Core().V1().ResourceQuotas().Lister()
}
