package gang

import (
	corev1 "k8s.io/api/core/v1"
)

// Form is a way in which pods say that they are a gang. A pod that has several is of the gang of the first.
type Form uint8

// The forms.
const (
	// FormAnnotations is the form of annotation divvy.dev/gang.
	FormAnnotations Form = iota
	// FormKubernetes is PodGroup of scheduling.k8s.io/v1alpha2, by the pod's schedulingGroup.
	FormKubernetes
)

// PodGroup is what an object says about a gang.
type PodGroup struct {
	// Minimum is how many members must be placed together; 0 is of pods that are no gang.
	Minimum  int
	Topology []Level
}

// formOf is the form in which a pod names a gang of others' forms, and the gang's name there.
func formOf(pod *corev1.Pod) (Form, string) {
	if group := pod.Spec.SchedulingGroup; group != nil && group.PodGroupName != nil {
		return FormKubernetes, *group.PodGroupName
	}
	return FormAnnotations, ""
}

// foreign reads a gang of another form.
func foreign(pod *corev1.Pod, form Form, name string, groups PodGroups) (Gang, bool, error) {
	g := Gang{Namespace: pod.Namespace, Name: "podgroup/" + name}
	var group PodGroup
	ok := groups != nil
	if ok {
		group, ok = groups.PodGroup(form, pod.Namespace, name)
	}
	if !ok {
		return g, true, invalid("PodGroup %s does not exist in namespace %s", quote(name), pod.Namespace)
	}
	if group.Minimum == 0 {
		return g, false, nil
	}
	g.Minimum, g.Size, g.Topology = group.Minimum, group.Minimum, group.Topology
	return g, true, g.adorn(pod.Annotations)
}
