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

// quiet is how long a pod is left alone after something was said about it: what is free changes with every pod that
// comes and goes, and a stream of figures tells nobody more.
const quiet = 30 * time.Second

// remind is after how long the same is said again of a pod that waits still: Kubernetes forgets events, after an hour
// where nothing else is configured.
const remind = 30 * time.Minute

// longestNote is what Kubernetes allows for an event's text, in bytes.
const longestNote = 1024

// mostTexts bounds what is remembered of a pod that waits for long beside others that come and go.
const mostTexts = 100

// reasons says on pods why they wait: once, again when that changes, and from time to time.
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

// rest reports whether the pod is to be left alone now, whatever there is to say.
func (r *reasons) rest(pod types.UID) bool {
	before := r.said[pod]
	return before != nil && r.now().Sub(before.at) < quiet
}

// due reports whether a text about a pod is to be said now.
func (r *reasons) due(pod types.UID, text string) bool {
	before := r.said[pod]
	return before == nil || !r.rest(pod) && (before.text != text || r.now().Sub(before.at) >= remind)
}

// say says it; what could not be said is due again later. An event's name comes from the pod and the text, so that what
// was said before a restart is not said again, and what was said before another text is counted up instead of written
// twice.
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
		return fmt.Errorf("say on pod %s/%s why it waits: %w", pod.Namespace, pod.Name, err)
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

// forget drops pods that are gone or do not wait any more.
func (r *reasons) forget(waiting map[types.UID]bool) {
	for uid := range r.said {
		if !waiting[uid] {
			delete(r.said, uid)
		}
	}
}
