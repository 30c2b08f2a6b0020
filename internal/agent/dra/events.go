package dra

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// maxNote bounds an event's text (events.k8s.io/v1, Event.note).
const maxNote = 1024

// The reasons of events.
const (
	// reasonPrepareFailed is of claims that cannot be served.
	reasonPrepareFailed = "PrepareFailed"
	// reasonDiffers is of pods that name parts of a claim by which it is not divided.
	reasonDiffers = "PreparedOtherwise"
	// reasonAdmin is of claims with admin access.
	reasonAdmin = "AdminAccess"
	// reasonCards is of claims with RDMA cards.
	reasonCards = "CardsAttached"
)

// teller writes events; equal ones are counted in one object by the recorder.
type teller struct {
	recorder events.EventRecorder
}

// refused tells a claim and its pods why they cannot start.
func (t *teller) refused(claim *resourcev1.ResourceClaim, pods []*corev1.Pod, err error) {
	text := note(err.Error())
	claim = claim.DeepCopy()
	claim.SetGroupVersionKind(resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"))
	var related runtime.Object
	for _, pod := range pods {
		pod = pod.DeepCopy()
		pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		t.recorder.Eventf(pod, claim, corev1.EventTypeWarning, reasonPrepareFailed, "Prepare", "%s", text)
		related = pod
	}
	t.recorder.Eventf(claim, related, corev1.EventTypeWarning, reasonPrepareFailed, "Prepare", "%s", text)
}

// note cuts a text to what an event takes.
func note(text string) string {
	if len(text) <= maxNote {
		return text
	}
	return strings.ToValidUTF8(text[:maxNote-3], "") + "..."
}
