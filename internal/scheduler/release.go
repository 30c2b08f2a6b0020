package scheduler

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// releasers is how many claims are released side by side.
const releasers = 8

// Release clears the claims of pods that have ended: their nodes have let go of the devices before, and nobody should wait
// until the controller manager clears them. Anybody may call its methods.
type Release struct {
	writer *Writer
	queue  workqueue.TypedRateLimitingInterface[released]
}

// released is a claim, and the pod that has ended. Where that is doubted, the API server is asked first.
type released struct {
	name    string
	pod     *corev1.Pod
	doubted bool
}

// NewRelease makes a queue that is empty.
func NewRelease(writer *Writer) *Release {
	limit := workqueue.NewTypedItemExponentialFailureRateLimiter[released](100*time.Millisecond, 10*time.Second)
	return &Release{writer: writer, queue: workqueue.NewTypedRateLimitingQueue(limit)}
}

// Run releases until the context ends.
func (r *Release) Run(ctx context.Context) {
	go func() {
		<-ctx.Done()
		r.queue.ShutDown()
	}()
	for range releasers {
		go func() {
			for {
				one, end := r.queue.Get()
				if end {
					return
				}
				if r.done(ctx, one) {
					r.queue.Forget(one)
				} else {
					r.queue.AddRateLimited(one)
				}
				r.queue.Done(one)
			}
		}()
	}
}

// done reports whether nothing is left to be done.
func (r *Release) done(ctx context.Context, one released) bool {
	if one.doubted {
		there, err := r.writer.there(ctx, one.pod)
		if there || err != nil {
			return err == nil
		}
	}
	return r.writer.Release(ctx, one.pod.Namespace, one.name, one.pod)
}

// Pod releases the claims of a pod that has ended.
func (r *Release) Pod(pod *corev1.Pod) {
	for i := range pod.Spec.ResourceClaims {
		if name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i]); err == nil && name != nil {
			r.queue.Add(released{name: *name, pod: pod})
		}
	}
}

// Sweep releases claims that are still reserved for pods that ended while nobody led, or for nobody. there says whether a pod
// is there and runs, as far as is known; whoever knows claims may not know their pods yet, so the API server is asked about the
// others.
func (r *Release) Sweep(claims []*resourcev1.ResourceClaim, there func(namespace string, user resourcev1.ResourceClaimConsumerReference) bool) {
	for _, claim := range claims {
		if !has(claim) {
			continue
		}
		if len(claim.Status.ReservedFor) == 0 {
			r.queue.Add(released{name: claim.Name, pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace}}})
		}
		for _, user := range claim.Status.ReservedFor {
			if user.Resource == "pods" && !there(claim.Namespace, user) {
				ended := &corev1.Pod{}
				ended.Namespace, ended.Name, ended.UID = claim.Namespace, user.Name, user.UID
				r.queue.Add(released{name: claim.Name, pod: ended, doubted: true})
			}
		}
	}
}
