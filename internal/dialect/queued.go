package dialect

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/queue"
)

// queueLabels are the labels of pods that queues read.
var queueLabels = []string{v1alpha1.QueueLabel, v1alpha1.QuotaLabel, v1alpha1.MovableLabel}

// CheckQueue refuses a pod that is created for a queue that its namespace may not use, or with labels that do not read. The
// tree is nil where nobody serves queues. A warning says why the pod will wait. An error wraps [ErrRefused].
func CheckQueue(pod *corev1.Pod, tree *queue.Tree) (warnings []string, err error) {
	if err := checkLabels(pod); err != nil {
		return nil, err
	}
	if tree == nil {
		return nil, nil
	}
	name := pod.Labels[v1alpha1.QueueLabel]
	if _, there := tree.Find(name); name != "" && !there {
		return []string{fmt.Sprintf("label %s: there is no queue %s: the pod waits until there is", v1alpha1.QueueLabel, name)}, nil
	}
	if name != "" && !tree.Admits(name, pod.Namespace) {
		return nil, refuseQueue(pod, tree, "label "+v1alpha1.QueueLabel, name)
	}
	if outside := name == "" && tree.Of(pod.Namespace) == queue.Outside; outside && quotaOf(pod) == v1alpha1.QuotaGuaranteed {
		return []string{fmt.Sprintf("label %s: nothing is guaranteed to namespace %s, which no queue lists: the pod waits until one does", v1alpha1.QuotaLabel, pod.Namespace)}, nil
	}
	return nil, nil
}

// CheckRequeued refuses what the labels that queues read may not become once a pod is created: another quota, and another
// queue once it has a node or if its namespace may not use that queue now. An error wraps [ErrRefused].
func CheckRequeued(before, after *corev1.Pod, tree *queue.Tree) error {
	differs := func(label string) bool { return before.Labels[label] != after.Labels[label] }
	if !slices.ContainsFunc(queueLabels, differs) {
		return nil
	}
	if err := checkLabels(after); err != nil {
		return err
	}
	if quotaOf(before) != quotaOf(after) {
		return refuse("label %s does not change once the pod is created: create the pod anew", v1alpha1.QuotaLabel)
	}
	name := after.Labels[v1alpha1.QueueLabel]
	switch {
	case !differs(v1alpha1.QueueLabel):
		return nil
	case after.Spec.NodeName != "":
		return refuse("label %s does not change once the pod has a node: create the pod anew", v1alpha1.QueueLabel)
	case tree == nil || name == "":
		return nil
	}
	// A queue that is to come is no way out of the one that the pod is in.
	if _, there := tree.Find(name); !there {
		return refuse("label %s: there is no queue %s", v1alpha1.QueueLabel, name)
	}
	if !tree.Admits(name, after.Namespace) {
		return refuseQueue(after, tree, "label "+v1alpha1.QueueLabel, name)
	}
	return nil
}

// checkLabels refuses values that nobody reads.
func checkLabels(pod *corev1.Pod) error {
	if name := pod.Labels[v1alpha1.QueueLabel]; name != "" && !v1alpha1.ValidQueueName(name) {
		return refuse("label %s: %q is no name of a queue: give at most 63 lower-case letters, digits, '-' and '.'", v1alpha1.QueueLabel, name)
	}
	if quota := pod.Labels[v1alpha1.QuotaLabel]; quota != "" {
		if _, err := v1alpha1.ParseQuota(quota); err != nil {
			return refuse("label %s: %q: choose %s, %s or %s", v1alpha1.QuotaLabel, quota, v1alpha1.QuotaGuaranteed, v1alpha1.QuotaBorrowing, v1alpha1.QuotaOpportunistic)
		}
	}
	if movable := pod.Labels[v1alpha1.MovableLabel]; movable != "" && movable != "true" && movable != "false" {
		return refuse("label %s: %q: give true or false", v1alpha1.MovableLabel, movable)
	}
	return nil
}

// quotaOf is a pod's quota, which is empty where it does not read.
func quotaOf(pod *corev1.Pod) v1alpha1.Quota {
	quota, _ := v1alpha1.ParseQuota(pod.Labels[v1alpha1.QuotaLabel])
	return quota
}

// mostNamed is how many namespaces a refusal names.
const mostNamed = 4

// refuseQueue says who may use a queue that is named somewhere in a pod, and which one the pod's namespace has.
func refuseQueue(pod *corev1.Pod, tree *queue.Tree, named, name string) error {
	may := "no namespace"
	switch all := tree.Namespaces(name); {
	case slices.Contains(all, v1alpha1.OtherNamespaces):
		may = "namespaces that no other queue lists"
	case len(all) > 0:
		may = "namespace " + strings.Join(all[:min(len(all), mostNamed)], ", ")
		if more := len(all) - mostNamed; more > 0 {
			may += fmt.Sprintf(" and %d more", more)
		}
	}
	own := "which no queue lists"
	if n := tree.Of(pod.Namespace); n != queue.Outside {
		own = "whose queue is " + tree.Name(n)
	}
	return refuse("%s: queue %s is for pods of %s, and this one is of %s, %s: leave it out, or have the queue list the namespace",
		named, name, may, pod.Namespace, own)
}

// CheckServed refuses a pod with claims in a namespace that has a queue, if another scheduler than Divvy's is to place it: that
// one keeps no limits. What the claims are for is not asked, because they can be made, or made anew, after the pod. An error
// wraps [ErrRefused].
func (t *Translator) CheckServed(pod *corev1.Pod, tree *queue.Tree) error {
	if tree == nil || pod.Spec.SchedulerName == t.scheduler || len(pod.Spec.ResourceClaims) == 0 {
		return nil
	}
	n := tree.Of(pod.Namespace)
	if n == queue.Outside {
		return nil
	}
	return refuse("the pod has claims and is for scheduler %s, and namespace %s is of queue %s, whose limits only scheduler %s keeps: name that one",
		pod.Spec.SchedulerName, pod.Namespace, tree.Name(n), t.scheduler)
}

// CheckMaker is CheckServed of a claim that a scheduler makes for a pod that asks for a device class as an extended resource.
// The user is who makes it.
func (t *Translator) CheckMaker(claim *resourcev1.ResourceClaim, user string, tree *queue.Tree) error {
	if _, extended := claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation]; !extended || tree == nil || slices.Contains(t.makers, user) {
		return nil
	}
	n := tree.Of(claim.Namespace)
	if n == queue.Outside {
		return nil
	}
	return refuse("namespace %s is of queue %s, whose limits only scheduler %s keeps: let that one place pods that ask for GPUs as an extended resource",
		claim.Namespace, tree.Name(n), t.scheduler)
}
