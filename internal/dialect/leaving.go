package dialect

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// withoutClaims are schedulers that cannot allocate claims. No translated pod stays with them, whatever dialects are
// turned on.
var withoutClaims = []string{koordScheduler}

// foreign reports whether a scheduler belongs to a dialect that is turned on. Such a scheduler would look for the
// limits that the translation removed.
func (t *Translator) foreign(scheduler string) bool {
	return scheduler != t.scheduler && (slices.Contains(withoutClaims, scheduler) ||
		slices.ContainsFunc(t.dialects, func(d Dialect) bool { return slices.Contains(d.Owns().Schedulers, scheduler) }))
}

// replaces reports whether pods that name no scheduler are given to the one of the configuration: in mode slots, because
// no other can choose a GPU, and where Divvy's scheduler runs. The API server names the default scheduler in pods that
// name none, before it asks.
func (t *Translator) replaces(scheduler string) bool {
	return scheduler != t.scheduler && (scheduler == "" || scheduler == defaultScheduler) && (t.mode == ModeSlots || t.makes())
}

// makes reports whether Divvy's scheduler runs, which makes the claims of its pods.
func (t *Translator) makes() bool { return len(t.makers) > 0 }

// places reports whether Divvy's scheduler places a pod once it is translated.
func (t *Translator) places(pod *corev1.Pod) bool {
	scheduler := pod.Spec.SchedulerName
	return t.makes() && (scheduler == t.scheduler || t.foreign(scheduler) || t.replaces(scheduler))
}

// Scheduler is the name under which the scheduler runs that pods get.
func (t *Translator) Scheduler() string { return t.scheduler }

// MakerCondition returns the CEL expression that is true of claims but those that Divvy's scheduler makes as pods describe them,
// "" where it does not run. Those were checked with the pod. It makes other claims too: for extended resources of device classes.
func (t *Translator) MakerCondition() string {
	if !t.makes() {
		return ""
	}
	return "!(request.userInfo.username in " + list(t.makers) + " && object.metadata.name.matches('" + v1alpha1.ClaimNamePattern + "'))"
}

// Queues reports whether Divvy's scheduler serves queues.
func (t *Translator) Queues() bool { return t.queues }

// Makers are the users as which Divvy's scheduler makes claims; none where it does not run.
func (t *Translator) Makers() []string { return slices.Clone(t.makers) }

// checkLeaving refuses to take a pod from a scheduler if something would be lost with it: what only that scheduler
// gives, or the pod's place in a group. The group's pods without GPUs are not translated. They would stay behind and
// wait for it.
func (t *Translator) checkLeaving(pod *corev1.Pod) error {
	if err := checkKoordinator(pod); err != nil {
		return err
	}
	scheduler := pod.Spec.SchedulerName
	if !t.foreign(scheduler) {
		return nil
	}
	group, known, ok := groupOf(pod)
	if !ok {
		return nil
	}
	after := ", which then starts without a group"
	if known && t.makes() {
		after = ", which knows the group too"
	}
	return refuse("the pod is one of the group %q of scheduler %s, which would wait for it and run none: name %s as scheduler of the whole workload%s",
		group, scheduler, t.scheduler, after)
}

// Names by which pods say that they start together.
var (
	groupAnnotations = []string{"scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name", "gang.scheduling.koordinator.sh/name", kaiGroup}
	groupLabels      = []string{"scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io", "pod-group.scheduling.sigs.k8s.io/name"}
	// groupKinds are workloads that these schedulers group by themselves, without a word in the pod.
	groupKinds = []string{"JAXJob", "MPIJob", "PaddleJob", "PyTorchJob", "RayCluster", "TFJob", "XGBoostJob"}
)

// kaiGroup is KAI's annotation, whose groups Divvy's scheduler does not know.
const kaiGroup = "pod-group-name"

// groupOf returns the name of the group of pods that start together, and whether Divvy's scheduler knows groups of its form.
func groupOf(pod *corev1.Pod) (name string, known, ok bool) {
	for _, key := range groupAnnotations {
		if name, ok := pod.Annotations[key]; ok {
			return name, key != kaiGroup, true
		}
	}
	for _, key := range groupLabels {
		if name, ok := pod.Labels[key]; ok {
			return name, true, true
		}
	}
	for _, owner := range pod.OwnerReferences {
		if slices.Contains(groupKinds, owner.Kind) {
			return owner.Name, false, true
		}
	}
	return "", false, false
}
