package demand

import corev1 "k8s.io/api/core/v1"

// Particular reports whether a pod says where it would rather be, or on which node alone it may be.
func Particular(pod *corev1.Pod) bool {
	if len(pod.Spec.TopologySpreadConstraints) > 0 || pod.Status.NominatedNodeName != "" {
		return true
	}
	affinity := pod.Spec.Affinity
	if affinity == nil {
		return false
	}
	if near := affinity.PodAffinity; near != nil && len(near.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
		return true
	}
	if far := affinity.PodAntiAffinity; far != nil && len(far.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
		return true
	}
	node := affinity.NodeAffinity
	if node == nil {
		return false
	}
	if len(node.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
		return true
	}
	if required := node.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		for i := range required.NodeSelectorTerms {
			if len(required.NodeSelectorTerms[i].MatchFields) > 0 {
				return true
			}
		}
	}
	return false
}
