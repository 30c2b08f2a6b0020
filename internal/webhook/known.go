package webhook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// known is the server's view of the cluster: what the driver published, the device classes, runtime classes, all claims,
// the pods that wait for Divvy's scheduler, queues, quotas and LimitRanges; in mode slots nodes and pods in place of devices and claims.
// Of each object it keeps only what is counted.
type known struct {
	fleet    *fleet
	limits   *bounds[dialect.Limit]
	ranges   *bounds[dialect.Range]
	accounts *accounts
	runtimes runtimes
	queues   queues

	reflectors []*cache.Reflector
	synced     []cache.InformerSynced
	// followings are of the kinds, by their names in the API.
	followings map[string]*following
	running    sync.WaitGroup
}

// lister reads and watches the objects of one kind.
type lister[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// filling is a store that becomes complete.
type filling interface {
	cache.ReflectorStore
	synced() bool
}

// newKnown follows with a client all kinds but queues, which it follows with the other one, if the configuration says so.
func newKnown(client kubernetes.Interface, objects dynamic.Interface, translator *dialect.Translator) *known {
	k := &known{fleet: newFleet(time.Now), limits: limitsOf(translator), ranges: rangesOf(translator), followings: make(map[string]*following)}
	claims := &following{now: time.Now}
	k.accounts = newAccounts(k.fleet.sizes, time.Now, claims.since)
	other := func(kind string) *following {
		k.followings[kind] = &following{now: time.Now}
		return k.followings[kind]
	}
	if translator.Slots() {
		k.followings["pods"] = claims
		follow(k, client, client.CoreV1().Nodes(), &corev1.Node{}, "", k.fleet.nodeStore(), other("nodes"))
		follow(k, client, client.CoreV1().Pods(metav1.NamespaceAll), &corev1.Pod{}, "", k.accounts.slottedStore(), claims)
	} else {
		k.followings["resourceclaims"] = claims
		k.followClaims(client, claims, other)
	}
	if len(translator.Makers()) > 0 {
		pods := other("pods")
		k.accounts.followed = func() time.Time { return later(claims.since(), pods.since()) }
		follow(k, client, client.CoreV1().Pods(metav1.NamespaceAll), &corev1.Pod{}, waitingPods(translator), k.accounts.podStore(), pods)
	}
	follow(k, client, client.CoreV1().ResourceQuotas(metav1.NamespaceAll), &corev1.ResourceQuota{}, "", k.limits.store(), other("resourcequotas"))
	follow(k, client, client.CoreV1().LimitRanges(metav1.NamespaceAll), &corev1.LimitRange{}, "", k.ranges.store(), other("limitranges"))
	if translator.Queues() && objects != nil {
		k.queues.followed = true
		follow(k, client, optional{objects.Resource(queueResource)}, queueKind(), "", k.queues.store(), other(v1alpha1.QueueResources))
	}
	follow(k, client, client.NodeV1().RuntimeClasses(), &nodev1.RuntimeClass{}, "", k.runtimes.store(), other("runtimeclasses"))
	return k
}

// followClaims follows what is published and asked in mode claims.
func (k *known) followClaims(client kubernetes.Interface, claims *following, other func(kind string) *following) {
	resources := client.ResourceV1()
	ours := resourcev1.ResourceSliceSelectorDriver + "=" + v1alpha1.Driver
	follow(k, client, resources.ResourceSlices(), &resourcev1.ResourceSlice{}, ours, k.fleet.sliceStore(), other("resourceslices"))
	follow(k, client, resources.DeviceClasses(), &resourcev1.DeviceClass{}, "", k.fleet.classStore(), other("deviceclasses"))
	follow(k, client, resources.ResourceClaims(metav1.NamespaceAll), &resourcev1.ResourceClaim{}, "", k.accounts.store(), claims)
}

// later is the later of two times, and zero if one of them is.
func later(a, b time.Time) time.Time {
	if a.IsZero() || b.IsZero() {
		return time.Time{}
	}
	if a.Before(b) {
		return b
	}
	return a
}

// follow has a store follow the objects of one kind that a field selector selects.
func follow[L runtime.Object](k *known, client kubernetes.Interface, objects lister[L], kind runtime.Object, selector string, into filling, by *following) {
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = selector
			list, err := objects.List(ctx, options)
			by.asked(options, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector
			return by.watch(ctx, options, objects.Watch)
		},
	}
	k.reflectors = append(k.reflectors, cache.NewReflectorWithOptions(
		cache.ToListWatcherWithWatchListSemantics(source, client), kind, into, cache.ReflectorOptions{Name: fmt.Sprintf("%T", kind)}))
	k.synced = append(k.synced, into.synced)
}

func (k *known) start(ctx context.Context) {
	for _, r := range k.reflectors {
		k.running.Go(func() { r.RunWithContext(ctx) })
	}
}

// wait returns once everything has been read.
func (k *known) wait(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), k.synced...) {
		return errors.New("stopped before the cluster's GPUs, claims, quotas and LimitRanges were read")
	}
	return nil
}

// trouble says in one line of which kinds the API server does not tell, and why; it is nil while it answers.
func (k *known) trouble() error {
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(k.followings)) {
		if err := k.followings[kind].trouble(); err != nil {
			all = append(all, fmt.Sprintf("%s: %v", kind, err))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return errors.New(strings.ReplaceAll(strings.Join(all, "; "), "\n", "; "))
}

// shutdown waits until nothing is read any more; the context of start has ended.
func (k *known) shutdown() { k.running.Wait() }

// as returns an object as what it must be.
func as[T any](object metav1.Object) (T, error) {
	is, ok := object.(T)
	if !ok {
		return is, fmt.Errorf("read an object of the cluster: it is a %T", object)
	}
	return is, nil
}
