package controller

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

const (
	// largestKept bounds the bytes that are kept of one pod or claim. Whoever may create pods decides how long they are,
	// and what lasts longer than an honest request would fill the memory of this process.
	largestKept = 8 << 10
	// mostNames bounds the claims that are kept of a pod that is larger.
	mostNames = 64
	// longestOwn bounds a label or an annotation of ours: the longest is a time.
	longestOwn = 63
)

// slimPod replaces a pod's specification and status by what is read here. Of a pod that is too large even so, only the
// claims' names are kept and that it carries templates; why it waits is then not explained.
func slimPod(pod *corev1.Pod, scheduler string) {
	carried := stillCarried(pod)
	spec := corev1.PodSpec{NodeName: pod.Spec.NodeName}
	if schedulersOwn(pod, scheduler) {
		spec.SchedulerName = v1alpha1.SchedulerName
	}
	if len(pod.Spec.ResourceClaims) > 0 {
		spec.ResourceClaims, spec.NodeSelector = pod.Spec.ResourceClaims, pod.Spec.NodeSelector
		spec.Affinity, spec.Tolerations = requiredOf(pod.Spec.Affinity), pod.Spec.Tolerations
	}
	status := corev1.PodStatus{Phase: pod.Status.Phase, Conditions: pod.Status.Conditions, ResourceClaimStatuses: pod.Status.ResourceClaimStatuses}
	if spec.Size()+status.Size()+len(carried[v1alpha1.TemplatesAnnotation]) > largestKept {
		spec = corev1.PodSpec{NodeName: spec.NodeName, SchedulerName: spec.SchedulerName, ResourceClaims: templatesNamed(pod.Spec.ResourceClaims)}
		status = corev1.PodStatus{Phase: pod.Status.Phase}
		if carried != nil {
			carried = map[string]string{v1alpha1.TemplatesAnnotation: ""}
		}
	}
	pod.Spec, pod.Status = spec, status
	pod.Annotations, pod.Labels, pod.Finalizers, pod.OwnerReferences = carried, nil, nil, nil
}

// schedulersOwn reports whether Divvy's scheduler, of that name, places a pod, and so says itself why it waits. No other
// scheduler makes claims, whatever it is called.
func schedulersOwn(pod *corev1.Pod, scheduler string) bool {
	_, described := pod.Annotations[v1alpha1.ClaimsAnnotation]
	return described || pod.Spec.SchedulerName == scheduler
}

// left reports whether what a pod carries was too long to be kept: it is read from the API server.
func left(pod *corev1.Pod) bool {
	text, ok := pod.Annotations[v1alpha1.TemplatesAnnotation]
	return ok && text == ""
}

// requiredOf is the part of an affinity that says on which nodes a pod may run.
func requiredOf(affinity *corev1.Affinity) *corev1.Affinity {
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
	}}
}

// templatesNamed are the first claims of different templates: templates that a pod names are not collected.
func templatesNamed(claims []corev1.PodResourceClaim) []corev1.PodResourceClaim {
	seen := make(map[string]bool)
	var kept []corev1.PodResourceClaim
	for i := range claims {
		name := claims[i].ResourceClaimTemplateName
		if name == nil || seen[*name] || len(kept) == mostNames {
			continue
		}
		seen[*name] = true
		kept = append(kept, claims[i])
	}
	return kept
}

// slimClaim drops what a claim asks if that is too long. What is then said of its pod is what the rest of it lacks.
func slimClaim(claim *resourcev1.ResourceClaim) {
	if claim.Spec.Size() > largestKept {
		claim.Spec = resourcev1.ResourceClaimSpec{}
	}
}

// ownerOf is what is read of a claim's owners: the pod that it was made for.
func ownerOf(claim *resourcev1.ResourceClaim) []metav1.OwnerReference {
	owner := metav1.GetControllerOf(claim)
	if owner == nil || len(owner.UID) > longestOwn {
		return nil
	}
	return []metav1.OwnerReference{{UID: owner.UID, Controller: owner.Controller}}
}

// slimTemplate drops the content of a template that no translation made, or that is longer than theirs. It is then none
// of a translated pod's here, as one of another content is.
func slimTemplate(template *resourcev1.ResourceClaimTemplate) {
	if template.Spec.Size() > 4*largestKept || !dialect.Genuine(template) {
		template.Spec = resourcev1.ResourceClaimTemplateSpec{}
	}
	kept := func(all map[string]string, name string) map[string]string {
		if text, ok := all[name]; ok && len(text) <= longestOwn {
			return map[string]string{name: text}
		}
		return nil
	}
	template.Labels = kept(template.Labels, v1alpha1.ManagedLabel)
	template.Annotations = kept(template.Annotations, v1alpha1.UsedAnnotation)
	template.Finalizers, template.OwnerReferences = nil, nil
}
