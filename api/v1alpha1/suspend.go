package v1alpha1

import (
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SuspendedCondition is the type of the condition by which the node's agent answers a [Suspension], in each of the claim's devices
// of [Driver] in its status. The condition's ObservedGeneration is the suspension's Order, also when its annotation has gone.
const SuspendedCondition = "Suspended"

// Reasons of [SuspendedCondition].
const (
	// SuspendedReason comes with status True: all bytes are in host memory, and others may have the room on the GPU.
	SuspendedReason = "Suspended"
	// RefusedReason comes with status False: the share cannot be suspended, as the message says, and is on its GPU.
	RefusedReason = "Refused"
	// ResumedReason comes with status False: the share is back on its GPU.
	ResumedReason = "Resumed"
)

// Suspension has the shares of a claim leave their GPUs.
type Suspension struct {
	Version int `json:"version"`
	// Order is 1 for a claim's first suspension and one more for each that follows, so that an answer to an earlier one is none.
	Order int64 `json:"order"`
	// For is the pod for which the shares leave, as NAMESPACE/NAME, and Queue that pod's queue, empty outside all queues.
	For   string `json:"for"`
	Queue string `json:"queue,omitempty"`
}

// ParseSuspension reads a [SuspendAnnotation], strictly: unknown and repeated fields, another version and what no scheduler
// writes are errors.
func ParseSuspension(text string) (Suspension, error) {
	var s Suspension
	if err := parseAnnotation(SuspendAnnotation, text, &s, s.validate); err != nil {
		return Suspension{}, err
	}
	return s, nil
}

// Text writes the annotation.
func (s Suspension) Text() (string, error) {
	s.Version = annotationVersion
	return annotationText(SuspendAnnotation, s, s.validate)
}

// Whom names for whom the shares leave, in the words of messages.
func (s *Suspension) Whom() string {
	if s.Queue == "" {
		return "pod " + s.For
	}
	return "pod " + s.For + " of queue " + s.Queue
}

func (s *Suspension) validate() error {
	const maxSubdomain = 253
	namespace, name, ok := strings.Cut(s.For, "/")
	switch {
	case s.Version != annotationVersion:
		return fmt.Errorf("version %d is not %d", s.Version, annotationVersion)
	case s.Order < 1:
		return fmt.Errorf("order %d: orders are counted from 1", s.Order)
	case !ok || namespace == "" || len(namespace) > maxName || name == "" || len(name) > maxSubdomain || strings.Contains(name, "/"):
		return fmt.Errorf("for %q: write NAMESPACE/NAME of a pod", s.For)
	case len(s.Queue) > maxSubdomain:
		return fmt.Errorf("queue %q: a name has at most %d bytes", s.Queue, maxSubdomain)
	}
	return nil
}

// SuspensionAnswer is the condition by which an agent answers the suspension of that order. reason is one of those of
// [SuspendedCondition].
func SuspensionAnswer(order int64, reason, message string, now metav1.Time) metav1.Condition {
	status := metav1.ConditionFalse
	if reason == SuspendedReason {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{
		Type: SuspendedCondition, Status: status, Reason: reason, Message: message, ObservedGeneration: order, LastTransitionTime: now,
	}
}

// SuspensionAnswerOf is what the agent said last of a device in a claim's status, nil where it has said nothing.
func SuspensionAnswerOf(device *resourcev1.AllocatedDeviceStatus) *metav1.Condition {
	if device.Driver != Driver {
		return nil
	}
	for i := range device.Conditions {
		if device.Conditions[i].Type == SuspendedCondition {
			return &device.Conditions[i]
		}
	}
	return nil
}
