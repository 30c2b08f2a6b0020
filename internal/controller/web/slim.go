package web

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

const (
	// largestKept bounds the bytes that are kept of an annotation or of a claim: whoever may create pods decides how long
	// they are.
	largestKept = 8 << 10
	// mostKept bounds what is kept of a list that a pod has.
	mostKept = 64
)

// read are the annotations that are read here.
var read = []string{
	v1alpha1.RequestAnnotation, v1alpha1.TemplatesAnnotation, v1alpha1.ClaimsAnnotation, v1alpha1.AssignmentAnnotation, v1alpha1.GPUsAnnotation,
}

// slim drops from cached objects what is not read here: of a pod without GPUs almost everything.
func slim(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Pod:
		slimPod(o)
	case *corev1.Node:
		o.ObjectMeta = slimMeta(&o.ObjectMeta)
		o.Spec, o.Status = corev1.NodeSpec{}, corev1.NodeStatus{Allocatable: o.Status.Allocatable}
	case *resourcev1.ResourceClaim:
		o.ObjectMeta = slimMeta(&o.ObjectMeta)
		if o.Spec.Size() > largestKept {
			o.Spec = resourcev1.ResourceClaimSpec{}
		}
		o.Status.Devices = nil
	case *resourcev1.ResourceSlice:
		o.ObjectMeta = slimMeta(&o.ObjectMeta)
	case *eventsv1.Event:
		*o = eventsv1.Event{
			ObjectMeta: slimMeta(&o.ObjectMeta), EventTime: o.EventTime, Series: o.Series, Note: o.Note, Reason: o.Reason,
			DeprecatedLastTimestamp: o.DeprecatedLastTimestamp, Regarding: corev1.ObjectReference{UID: o.Regarding.UID},
		}
	}
	return object, nil
}

func slimMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	kept := metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}
	for _, name := range read {
		text := m.Annotations[name]
		if text == "" {
			continue
		}
		if len(text) > largestKept {
			text = "{}" // which no reader takes for more than that it is there
		}
		if kept.Annotations == nil {
			kept.Annotations = map[string]string{}
		}
		kept.Annotations[name] = text
	}
	return kept
}

func slimPod(pod *corev1.Pod) {
	spec := corev1.PodSpec{
		NodeName: pod.Spec.NodeName, SchedulerName: pod.Spec.SchedulerName, Containers: limited(pod.Spec.Containers), InitContainers: limited(pod.Spec.InitContainers),
	}
	status := corev1.PodStatus{Phase: pod.Status.Phase}
	meta := slimMeta(&pod.ObjectMeta)
	if spec.NodeName == "" && (len(pod.Spec.ResourceClaims) > 0 || meta.Annotations != nil) {
		spec.SchedulingGates = head(pod.Spec.SchedulingGates)
		spec.ResourceClaims = head(pod.Spec.ResourceClaims)
		status.ResourceClaimStatuses = head(pod.Status.ResourceClaimStatuses)
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled {
				c.Message = c.Message[:min(largestKept, len(c.Message))]
				status.Conditions = []corev1.PodCondition{c}
			}
		}
	}
	pod.ObjectMeta, pod.Spec, pod.Status = meta, spec, status
}

func head[T any](all []T) []T { return slices.Clone(all[:min(mostKept, len(all))]) }

// limited are the containers that ask for extended resources of GPUs, with that alone.
func limited(containers []corev1.Container) []corev1.Container {
	var kept []corev1.Container
	for i := range containers {
		var limits corev1.ResourceList
		for _, name := range []corev1.ResourceName{v1alpha1.SlotResource, "nvidia.com/gpu", "nvidia.com/gpu.shared"} {
			if n, ok := containers[i].Resources.Limits[name]; ok {
				if limits == nil {
					limits = corev1.ResourceList{}
				}
				limits[name] = n
			}
		}
		if limits != nil {
			kept = append(kept, corev1.Container{Resources: corev1.ResourceRequirements{Limits: limits}})
		}
	}
	return kept
}
