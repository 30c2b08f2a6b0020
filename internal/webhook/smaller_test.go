package webhook

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// TestSmallerClaimInTheWay makes a small claim of the name that a pod describes with more: the pod counts in full, also while
// the claim is there, because whoever made it may delete it.
func TestSmallerClaimInTheWay(t *testing.T) {
	small := func(pod *corev1.Pod) *resourcev1.ResourceClaim {
		claim := claimsOf(t, pod)[0]
		claim.Spec.Devices.Requests[0].Exactly.Capacity.Requests[v1alpha1.CapacityMemory] = resource.MustParse("1Gi")
		return claim
	}
	for _, order := range []string{"claim, review, pod", "review, claim, pod", "review, pod, claim"} {
		w := newWorld(t, withScheduler)
		pod := w.translated(t, asking)
		pod.Name, pod.UID = "a", "pod-a"
		claim := small(pod)
		for event := range strings.SplitSeq(order, ", ") {
			switch event {
			case "claim":
				text, err := json.Marshal(claim)
				do(t, err)
				_, err = w.judge.validateClaim(context.Background(), claimRequest(t, string(text)))
				do(t, err)
				do(t, w.claims.Add(claim))
			case "review":
				_, err := w.judge.validateNotes(context.Background(), asked(t, nil, pod))
				do(t, err)
			case "pod":
				do(t, w.pods.Add(pod))
			}
		}
		w.pass(time.Hour)
		if got := w.used(); got != 4 {
			t.Errorf("%s: %d GiB are used", order, got)
		}
		do(t, w.claims.Delete(claim))
		if got := w.used(); got != 4 {
			t.Errorf("%s: %d GiB are used without the claim", order, got)
		}
		do(t, w.pods.Delete(pod))
		w.pass(time.Hour)
		if got := w.used(); got != 0 {
			t.Errorf("%s: %d GiB are used in the end", order, got)
		}
	}
}
