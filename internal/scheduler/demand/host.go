package demand

import (
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Host is what the scheduler of Kubernetes counts for a pod of its node: thousandths of a processor, and bytes. It counts
// init containers, sidecars, the pod's overhead, amounts of the pod as a whole, and those that a resize has given already.
func Host(pod *corev1.Pod) (cpu int64, memory uint64) {
	all := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true})
	processors, bytes := all[corev1.ResourceCPU], all[corev1.ResourceMemory]
	return max(0, processors.MilliValue()), uint64(max(0, bytes.Value()))
}
