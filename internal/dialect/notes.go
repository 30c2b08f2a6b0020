package dialect

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// notes are the annotations of pods that Divvy's scheduler reads. Lasting ones do not change once the pod is created:
// what the pod's quota counted would not be what it gets.
var (
	lasting = []string{v1alpha1.ClaimsAnnotation, v1alpha1.ModelsAnnotation, v1alpha1.PreferAnnotation}
	notes   = append([]string{
		v1alpha1.GangAnnotation, v1alpha1.GangSizeAnnotation, v1alpha1.GangMinimumAnnotation, v1alpha1.GangTopologyAnnotation, v1alpha1.GangShareGPUsAnnotation,
	}, lasting...)
)

// NoteCondition returns the CEL expression that is true of pods that are created with an annotation or a label that Divvy's
// scheduler reads, and of updates that add, change or remove one.
func NoteCondition() string { return noteCondition("") }

// QueuedCondition is NoteCondition where the scheduler serves queues: it is true of all pods that are created with claims, too.
func QueuedCondition() string {
	return noteCondition(" || has(object.spec.resourceClaims) && object.spec.resourceClaims != null && size(object.spec.resourceClaims) > 0")
}

func noteCondition(orCreated string) string {
	in := func(object, where string, names []string, expression string) string {
		all := object + ".metadata." + where
		return fmt.Sprintf("has(%[1]s) && %[1]s.exists(n, n in %[2]s && (%[3]s))", all, list(names), expression)
	}
	differs := func(object, from, where string, names []string) string {
		return in(object, where, names, fmt.Sprintf("!has(%[1]s.metadata.%[3]s) || !(n in %[1]s.metadata.%[3]s) || %[1]s.metadata.%[3]s[n] != %[2]s.metadata.%[3]s[n]", from, object, where))
	}
	var created, changed []string
	for _, read := range []struct {
		where string
		names []string
	}{{"annotations", notes}, {"labels", queueLabels}} {
		names := slices.Sorted(slices.Values(read.names))
		created = append(created, in("object", read.where, names, "true"))
		changed = append(changed, differs("object", "oldObject", read.where, names), differs("oldObject", "object", read.where, names))
	}
	return "request.operation == 'CREATE' ? (" + strings.Join(created, " || ") + orCreated + ") : (" + strings.Join(changed, " || ") + ")"
}

// CheckNotes returns the claims that a pod describes, and refuses a pod whose annotations for Divvy's scheduler nobody could follow: claims that no translation
// described, or that no scheduler makes, and models of GPU that do not read. An error wraps [ErrRefused].
func (t *Translator) CheckNotes(pod *corev1.Pod) (map[string]resourcev1.ResourceClaimSpec, error) {
	described, err := Described(pod)
	if err != nil {
		return nil, err
	}
	if len(described) > 0 && (!t.makes() || pod.Spec.SchedulerName != t.scheduler) {
		return nil, refuse("annotation %s describes claims that only Divvy's scheduler makes, and the pod is for scheduler %q: leave out the annotation and the claims, and ask for GPUs in limits",
			v1alpha1.ClaimsAnnotation, pod.Spec.SchedulerName)
	}
	for _, name := range sortedKeys(described) {
		spec := described[name]
		if err := t.CheckWeights(&spec); err != nil {
			return nil, err
		}
	}
	if _, _, err := wished(pod); err != nil {
		return nil, err
	}
	return described, nil
}

// CheckLasting refuses to change what an annotation for Divvy's scheduler says once the pod is created. An error wraps
// [ErrRefused].
func CheckLasting(before, after *corev1.Pod) error {
	for _, name := range lasting {
		was, had := before.Annotations[name]
		is, has := after.Annotations[name]
		if had != has || was != is {
			return refuse("annotation %s does not change once the pod is created: create the pod anew", name)
		}
	}
	return nil
}

// wished reads which GPUs a pod accepts and wants.
func wished(pod *corev1.Pod) (v1alpha1.GPUModels, v1alpha1.GPUPreference, error) {
	models, err := v1alpha1.ParseGPUModels(pod.Annotations[v1alpha1.ModelsAnnotation])
	if err != nil {
		return "", "", refuse("annotation %s: %v", v1alpha1.ModelsAnnotation, err)
	}
	prefer, err := v1alpha1.ParseGPUPreference(pod.Annotations[v1alpha1.PreferAnnotation])
	if err != nil {
		return "", "", refuse("annotation %s: %v", v1alpha1.PreferAnnotation, err)
	}
	return models, prefer, nil
}

// checkWished refuses a pod that accepts some models only where nobody chooses GPUs by their models.
func (t *Translator) checkWished(pod *corev1.Pod) error {
	models, _, err := wished(pod)
	if err != nil || models == "" || t.mode == ModeSlots || t.places(pod) {
		return err
	}
	if t.makes() {
		return refuse("annotation %s: only scheduler %s chooses GPUs by their models, and the pod names %s: name that one, or leave out the annotation",
			v1alpha1.ModelsAnnotation, t.scheduler, pod.Spec.SchedulerName)
	}
	return refuse("annotation %s: only Divvy's scheduler chooses GPUs by their models, and it does not run here: leave out the annotation, or select nodes", v1alpha1.ModelsAnnotation)
}
