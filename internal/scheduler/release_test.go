package scheduler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// A scheduler that begins to lead clears the claims of pods that ended before, and not those of pods of which it has not heard
// yet: they run.
func TestSweep(t *testing.T) {
	claim := func(name string, users ...string) *resourcev1.ResourceClaim {
		c := claimAt(name, "1")
		c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "gpu", Driver: v1alpha1.Driver, Pool: "node", Device: "gpu-0"},
		}}}
		for _, user := range users {
			c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: user, UID: "uid-one"})
		}
		return c
	}
	unheard := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "unheard", UID: "uid-one"}}
	another := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "another", UID: "uid-two"}}
	claims := []*resourcev1.ResourceClaim{claim("runs", "unheard"), claim("ended", "gone"), claim("of-the-one-before", "another"), claim("for-nobody")}
	client := fake.NewClientset(claims[0], claims[1], claims[2], claims[3], unheard, another)
	r := NewRelease(&Writer{Client: client})
	r.Sweep(claims, func(string, resourcev1.ResourceClaimConsumerReference) bool { return false })
	for range claims {
		one, _ := r.queue.Get()
		if !r.done(t.Context(), one) {
			t.Errorf("%s is to be done again", one.name)
		}
	}
	for name, want := range map[string]bool{"runs": true, "ended": false, "of-the-one-before": false, "for-nobody": false} {
		got, err := client.ResourceV1().ResourceClaims("a").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || has(got) != want {
			t.Errorf("claim %s has %+v, %v", name, got.Status, err)
		}
	}
}
