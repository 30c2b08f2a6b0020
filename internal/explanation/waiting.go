package explanation

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
	"github.com/divvy-gpu/divvy/internal/overview"
)

// waiting adds the pods that wait for GPUs, those first that have waited longest. Asking has the keys of claims for Divvy's
// devices.
func (s *sight) waiting(ctx context.Context, pods []*corev1.Pod, asking map[string]bool) error {
	var wait []*corev1.Pod
	for i := range pods {
		if state, _ := stateOf(pods[i]); state == Waiting && asksForGPU(pods[i], asking) {
			wait = append(wait, pods[i])
		}
	}
	if len(wait) == 0 {
		return nil
	}
	slices.SortStableFunc(wait, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	said, err := listed(ctx, s, "events", s.toldReasons)
	if err != nil {
		return err
	}
	reasons := map[types.UID]string{}
	for _, t := range said {
		reasons[t.pod] = t.reason
	}
	for _, pod := range wait {
		e := Explanation{Scheduler: oneLine(pod.Spec.SchedulerName)}
		e.condition(pod)
		if reason := reasons[pod.UID]; reason != "" && e.Scheduler != v1alpha1.SchedulerName && len(pod.Spec.SchedulingGates) == 0 {
			e.Reason = reason
		}
		s.seen.Waiting = append(s.seen.Waiting, overview.Waiting{Namespace: pod.Namespace, Name: pod.Name, Since: pod.CreationTimestamp.Time, Reason: e.Reason})
	}
	return nil
}

// toldReason is what Divvy's controller said of a pod.
type toldReason struct {
	pod    types.UID
	reason string
}

// toldReasons are what the controller said of the pods of a namespace, the newest last.
func (s *sight) toldReasons(ctx context.Context, namespace string) ([]toldReason, error) {
	var told []toldReason
	for _, reason := range Reasons {
		events, err := s.from.Events(ctx, namespace, reason)
		if err != nil {
			return nil, err
		}
		slices.SortStableFunc(events, func(a, b *eventsv1.Event) int { return timeOf(a).Compare(timeOf(b)) })
		for _, e := range events {
			told = append(told, toldReason{e.Regarding.UID, oneLine(e.Note)})
		}
	}
	return told, nil
}

// asksForGPU reports whether a pod asks for GPUs of Divvy's.
func asksForGPU(pod *corev1.Pod, asking map[string]bool) bool {
	if pod.Annotations[v1alpha1.RequestAnnotation] != "" || pod.Annotations[v1alpha1.TemplatesAnnotation] != "" || pod.Annotations[v1alpha1.ClaimsAnnotation] != "" {
		return true
	}
	for i := range pod.Spec.ResourceClaims {
		if name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i]); err == nil && name != nil && asking[pod.Namespace+"/"+*name] {
			return true
		}
	}
	return false
}

// asksOurs reports whether a claim asks for devices of Divvy's classes.
func asksOurs(claim *resourcev1.ResourceClaim) bool {
	classes := dialect.Classes{}
	for i := range claim.Spec.Devices.Requests {
		r := &claim.Spec.Devices.Requests[i]
		if r.Exactly != nil && classes.Ours(r.Exactly.DeviceClassName) {
			return true
		}
		if slices.ContainsFunc(r.FirstAvailable, func(s resourcev1.DeviceSubRequest) bool { return classes.Ours(s.DeviceClassName) }) {
			return true
		}
	}
	return false
}
