package extender

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// asksShare reports whether a pod asks for a share, or for the slot that goes with one.
func asksShare(pod *corev1.Pod) bool {
	if pod.Annotations[v1alpha1.RequestAnnotation] != "" {
		return true
	}
	for _, all := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range all {
			if _, slot := all[i].Resources.Requests[v1alpha1.SlotResource]; slot {
				return true
			}
		}
	}
	return false
}

// foreign says why a pod cannot be placed by slots at all, "" for nothing. Such a pod named this scheduler by itself: the webhook
// leaves a pod alone that names a scheduler of gangs or queues.
func foreign(pod *corev1.Pod) string {
	const needs = " needs Kubernetes 1.36 and claims"
	if len(pod.Spec.ResourceClaims) > 0 {
		return "a pod with both a share and a resource claim" + needs + ": ask in one way"
	}
	for _, name := range []string{v1alpha1.GangAnnotation, v1alpha1.GangSizeAnnotation, v1alpha1.GangMinimumAnnotation, v1alpha1.GangTopologyAnnotation} {
		if _, ok := pod.Annotations[name]; ok {
			return "a gang (annotation " + name + ")" + needs + ", or a scheduler of gangs in schedulerName"
		}
	}
	for _, name := range []string{v1alpha1.QueueLabel, v1alpha1.QuotaLabel} {
		if _, ok := pod.Labels[name]; ok {
			return "a queue (label " + name + ")" + needs
		}
	}
	if pod.Annotations[v1alpha1.RequestAnnotation] == "" {
		return "the pod has no annotation " + v1alpha1.RequestAnnotation + ", which Divvy's webhook writes: make the pod again while the webhook runs"
	}
	return ""
}
