package dra

import (
	"strings"
	"sync"

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
	// reasonRaw is of pods with a part of a shared card that can send raw packets.
	reasonRaw = "RawPackets"
	// reasonLost is of pods whose claim the cluster has lost.
	reasonLost = "ClaimLost"
	// reasonRemoteEnded is of pods whose share on another host has ended.
	reasonRemoteEnded = "RemoteShareEnded"
)

// teller writes events; equal ones are counted in one object by the recorder.
type teller struct {
	recorder events.EventRecorder
	// raws has a [rawPod] for each pod that was warned of raw packets.
	raws sync.Map
}

// refused tells a claim and its pods why they cannot start.
func (t *teller) refused(claim *resourcev1.ResourceClaim, pods []*corev1.Pod, err error) {
	text := note(err.Error())
	var related runtime.Object
	for _, pod := range pods {
		related = podObject(pod)
		t.recorder.Eventf(related, claimObject(claim), corev1.EventTypeWarning, reasonPrepareFailed, "Prepare", "%s", text)
	}
	t.recorder.Eventf(claimObject(claim), related, corev1.EventTypeWarning, reasonPrepareFailed, "Prepare", "%s", text)
}

// prepared tells a claim and its pods what they have.
func (t *teller) prepared(claim *resourcev1.ResourceClaim, pods []*corev1.Pod, reason, text string) {
	for _, pod := range pods {
		t.recorder.Eventf(podObject(pod), claimObject(claim), corev1.EventTypeNormal, reason, "Prepare", "%s", note(text))
	}
	t.recorder.Eventf(claimObject(claim), nil, corev1.EventTypeNormal, reason, "Prepare", "%s", note(text))
}

// lost tells pods that the cluster has lost a claim whose devices they have.
func (t *teller) lost(claim string, pods []*corev1.Pod) {
	for _, pod := range pods {
		t.recorder.Eventf(podObject(pod), nil, corev1.EventTypeWarning, reasonLost, "Reconcile",
			"claim %s is gone or not allocated any more, as after somebody emptied its status: the pod keeps its devices until it ends, and Kubernetes may give them to others, who are refused where they cannot be shared", claim)
	}
}

// claimObject is a claim that an event can be about: what clients return has no kind.
func claimObject(claim *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	claim = claim.DeepCopy()
	claim.SetGroupVersionKind(resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"))
	return claim
}

// podObject is the same of a pod.
func podObject(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return pod
}

// note cuts a text to what an event takes.
func note(text string) string {
	if len(text) <= maxNote {
		return text
	}
	return strings.ToValidUTF8(text[:maxNote-3], "") + "..."
}
