package extender

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// notes and labels are those of pods that something reads here.
var (
	notes = []string{
		v1alpha1.RequestAnnotation, v1alpha1.AssignmentAnnotation, v1alpha1.ModelsAnnotation, v1alpha1.PreferAnnotation,
		v1alpha1.GangAnnotation, v1alpha1.GangSizeAnnotation, v1alpha1.GangMinimumAnnotation, v1alpha1.GangTopologyAnnotation,
	}
	labels = []string{v1alpha1.QueueLabel, v1alpha1.QuotaLabel}
)

// trimPod is what is kept of a pod: names, what it asks, and where it is.
func trimPod(pod *corev1.Pod) *corev1.Pod {
	short := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			DeletionTimestamp: pod.DeletionTimestamp, Annotations: only(pod.Annotations, notes), Labels: only(pod.Labels, labels),
		},
		Spec: corev1.PodSpec{
			NodeName: pod.Spec.NodeName, ResourceClaims: pod.Spec.ResourceClaims, SchedulingGates: pod.Spec.SchedulingGates,
			Containers: trimContainers(pod.Spec.Containers), InitContainers: trimContainers(pod.Spec.InitContainers),
			Overhead: pod.Spec.Overhead, Resources: pod.Spec.Resources,
		},
		Status: corev1.PodStatus{Phase: pod.Status.Phase},
	}
	return short
}

func trimContainers(all []corev1.Container) []corev1.Container {
	short := make([]corev1.Container, len(all))
	for i := range all {
		short[i] = corev1.Container{
			Name: all[i].Name, RestartPolicy: all[i].RestartPolicy,
			Resources: corev1.ResourceRequirements{Requests: all[i].Resources.Requests},
		}
	}
	return short
}

// trimNode is what is kept of a node: what its agent says, and what can be allocated.
func trimNode(node *corev1.Node) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Annotations: only(node.Annotations, []string{v1alpha1.GPUsAnnotation, v1alpha1.HeldAnnotation})},
		Status:     corev1.NodeStatus{Allocatable: node.Status.Allocatable},
	}
}

// only is what of a map has these keys, nil for nothing.
func only(all map[string]string, keys []string) map[string]string {
	var some map[string]string
	for _, key := range keys {
		if value, ok := all[key]; ok {
			if some == nil {
				some = make(map[string]string, len(keys))
			}
			some[key] = value
		}
	}
	return some
}
