package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	// component is who the events are from.
	component = "divvy"
	// reasonNoFit is the reason of events on pods that no GPU fits.
	reasonNoFit = "NoShareFits"
)

// quiet is the least time between two events of a pod. What is free changes with every pod that starts or ends, and an
// event for each change would help nobody.
const quiet = 30 * time.Second

// remind is after how long the same reason is written again for a pod that still waits. Kubernetes deletes events after
// an hour by default.
const remind = 30 * time.Minute

// longestNote is what Kubernetes allows for an event's text, in bytes.
const longestNote = 1024

// mostTexts bounds what is remembered of a pod that waits for long beside others that come and go.
const mostTexts = 100

// reasons writes events that say why pods wait: once, again when the reason changes, and from time to time.
type reasons struct {
	client   kubernetes.Interface
	now      func() time.Time
	instance string // of this replica

	said map[types.UID]*saying
}

// saying is what was said about a pod.
type saying struct {
	text  string
	at    time.Time
	count map[string]int32 // times that each text was said
}

// rest reports whether it is too early for another event of the pod.
func (r *reasons) rest(pod types.UID) bool {
	before := r.said[pod]
	return before != nil && r.now().Sub(before.at) < quiet
}

// due reports whether an event with this text is to be written now.
func (r *reasons) due(pod types.UID, text string) bool {
	before := r.said[pod]
	return before == nil || !r.rest(pod) && (before.text != text || r.now().Sub(before.at) >= remind)
}

// say writes the event. If that fails, the event is due again later. The event's name is a hash of the pod and the
// text, so that a restarted controller does not repeat it, and a text that comes back increases the event's count.
func (r *reasons) say(ctx context.Context, pod *corev1.Pod, text string) error {
	before := r.said[pod.UID]
	if before == nil {
		before = &saying{}
		r.said[pod.UID] = before
	}
	before.at = r.now()
	event := r.event(pod, text)
	_, err := r.client.EventsV1().Events(pod.Namespace).Create(ctx, event, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		err = nil
		if before.text != "" {
			err = r.again(ctx, event, max(before.count[text], 1)+1)
		}
	}
	if err != nil && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return fmt.Errorf("write why pod %s/%s waits: %w", pod.Namespace, pod.Name, err)
	}
	if len(before.count) >= mostTexts || before.count == nil {
		before.count = make(map[string]int32)
	}
	before.text = text
	before.count[text]++
	return nil
}

// noteOf is a text as long as an event can have.
func noteOf(text string) string {
	if len(text) <= longestNote {
		return text
	}
	return strings.ToValidUTF8(text[:longestNote], "")
}

func (r *reasons) event(pod *corev1.Pod, text string) *eventsv1.Event {
	sum := sha256.Sum256([]byte(string(pod.UID) + "\n" + text))
	name := pod.Name
	if len(name) > 200 {
		name = name[:200]
	}
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: pod.Namespace, Name: name + "." + hex.EncodeToString(sum[:8])},
		EventTime:           metav1.NewMicroTime(r.now()),
		ReportingController: component,
		ReportingInstance:   r.instance,
		Action:              "Scheduling",
		Reason:              reasonNoFit,
		Type:                corev1.EventTypeWarning,
		Regarding: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		},
		Note: text,
	}
}

// again counts up an event.
func (r *reasons) again(ctx context.Context, event *eventsv1.Event, count int32) error {
	change, err := json.Marshal(map[string]any{"series": eventsv1.EventSeries{Count: count, LastObservedTime: metav1.NewMicroTime(r.now())}})
	if err != nil {
		return fmt.Errorf("write the event's series: %w", err)
	}
	_, err = r.client.EventsV1().Events(event.Namespace).Patch(ctx, event.Name, types.MergePatchType, change, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("count up an event: %w", err)
	}
	return nil
}

// forget removes pods that do not wait any more.
func (r *reasons) forget(waiting map[types.UID]bool) {
	for uid := range r.said {
		if !waiting[uid] {
			delete(r.said, uid)
		}
	}
}
