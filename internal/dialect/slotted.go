package dialect

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Slots reports whether pods get slots and annotations, and no claims.
func (t *Translator) Slots() bool { return t.mode == ModeSlots }

// SlottedCondition returns the CEL expression that is true of pods that say what they ask in mode slots, also of those whose
// annotation nobody translated.
func SlottedCondition() string {
	return PodCondition(Names{Resources: []string{v1alpha1.SlotResource}, Annotations: []string{v1alpha1.RequestAnnotation}})
}

// BindingCondition returns the CEL expression that is true of Bindings that give a pod no GPU.
func BindingCondition() string {
	return "!has(object.metadata.annotations) || !('" + v1alpha1.AssignmentAnnotation + "' in object.metadata.annotations)"
}

// stockUser is the user of the cluster's own scheduler.
const stockUser = "system:kube-scheduler"

// BinderCondition returns the CEL expression that is true of requests of those who bind pods to GPUs, "" where nobody is named.
func (t *Translator) BinderCondition() string {
	if len(t.binders) == 0 {
		return ""
	}
	return "request.userInfo.username in " + list(t.binders)
}

// OthersCondition returns the CEL expression that is true of requests of everybody else who may bind a pod with GPUs. The cluster's
// own scheduler is not asked about where pods with GPUs are another one's: all other pods are its.
func (t *Translator) OthersCondition() string {
	known := slices.Clone(t.binders)
	if t.scheduler != defaultScheduler {
		known = append(known, stockUser)
	}
	if len(known) == 0 {
		return "true"
	}
	return "!(request.userInfo.username in " + list(known) + ")"
}

func checkBinders(users []string, mode string) error {
	if len(users) > 0 && mode != ModeSlots {
		return fmt.Errorf("%w: binders: mode %s has none: leave it out", ErrConfig, mode)
	}
	if len(users) > mostBinders {
		return fmt.Errorf("%w: binders: name at most %d", ErrConfig, mostBinders)
	}
	for _, user := range users {
		if !userPattern.MatchString(user) {
			return fmt.Errorf("%w: binders: %q is no user's name, such as system:serviceaccount:divvy-system:%s", ErrConfig, user, v1alpha1.SchedulerName)
		}
	}
	return nil
}

// mostBinders bounds the users who bind pods to GPUs.
const mostBinders = 32

// CheckSlotted returns what a pod of mode slots asks, nil for nothing. Whoever creates pods can write the annotation by hand, so it
// refuses what no translation writes, and what LimitRanges do not allow. An error wraps [ErrRefused].
func (t *Translator) CheckSlotted(pod *corev1.Pod, inventory Inventory) (*v1alpha1.PodRequest, error) {
	text, asks := pod.Annotations[v1alpha1.RequestAnnotation]
	if !asks {
		if container := slottedBy(pod); container != nil {
			return nil, refuse("container %q asks for %s, which Divvy counts itself: ask for %s or %s", container.Name, v1alpha1.SlotResource, v1alpha1.ResourceMemory, v1alpha1.ResourceGPU)
		}
		return nil, nil
	}
	request, err := v1alpha1.ParsePodRequest(text)
	if err != nil {
		return nil, refuse("%v: ask for GPUs in limits", err)
	}
	if err := checkUsers(pod, &request); err != nil {
		return nil, err
	}
	for i := range request.Shares {
		if config := request.Shares[i].Config; config != nil && t.maxWeight > 0 && config.Weight > t.maxWeight {
			return nil, refuseWeight(config.Weight, t.maxWeight)
		}
	}
	if kernel := t.OwnKernel(pod, inventory.Handlers); kernel != "" {
		return nil, refuseKernel(kernel)
	}
	if pod.Spec.NodeName != "" {
		return nil, refuseNode(pod)
	}
	if err := inventory.checkRanges(pod, slottedRequests(pod, &request)); err != nil {
		return nil, err
	}
	return &request, t.checkBinder(pod)
}

// slottedRequests returns what each container asks, in the order of the containers. Of several that take turns in a share each asks for
// all of it, which its pod holds until it ends.
func slottedRequests(pod *corev1.Pod, request *v1alpha1.PodRequest) (all []Request) {
	for _, ref := range containersOf(pod) {
		if s := request.ShareOf(ref.of(pod).Name); s != nil {
			all = append(all, Request{Container: ref, Count: s.GPUs, Whole: s.Whole, Memory: s.Amount(), Cores: s.Cores})
		}
	}
	return all
}

// slotNames are what containers of mode slots count.
var slotNames = Names{Resources: []string{v1alpha1.SlotResource}}

// slottedBy returns a container that asks for slots, nil for none.
func slottedBy(pod *corev1.Pod) *corev1.Container {
	for _, ref := range containersOf(pod) {
		if container := ref.of(pod); slotNames.askedBy(container) {
			return container
		}
	}
	return nil
}

// checkUsers refuses a pod unless exactly the containers that a request names have a slot.
func checkUsers(pod *corev1.Pod, request *v1alpha1.PodRequest) error {
	missing := 0
	for i := range request.Shares {
		missing += len(request.Shares[i].Containers)
	}
	for _, ref := range containersOf(pod) {
		container := ref.of(pod)
		if Privileged(container) {
			return RefusePrivileged(container.Name)
		}
		uses := request.ShareOf(container.Name) != nil
		if uses {
			missing--
		}
		if limit := container.Resources.Limits[v1alpha1.SlotResource]; uses != (limit.Value() == 1) || !uses && slotNames.askedBy(container) {
			return refuse("container %q asks for %s of %s, and annotation %s says otherwise: ask for GPUs in limits", container.Name, limit.String(), v1alpha1.SlotResource, v1alpha1.RequestAnnotation)
		}
	}
	if missing != 0 {
		return refuse("annotation %s names a container that the pod does not have: ask for GPUs in limits", v1alpha1.RequestAnnotation)
	}
	return nil
}

// checkBinder refuses a pod that names a scheduler of which it is known that it gives no GPUs.
func (t *Translator) checkBinder(pod *corev1.Pod) error {
	if scheduler := pod.Spec.SchedulerName; t.replaces(scheduler) || t.foreign(scheduler) {
		return refuse("the pod is for scheduler %q, which gives no GPUs here: name %s", scheduler, t.scheduler)
	}
	return nil
}

// CheckBinding refuses to bind a pod to a node without saying which GPUs it gets there, if the pod asks for any. An error wraps
// [ErrRefused].
func (t *Translator) CheckBinding(pod *corev1.Pod) error {
	_, asks := pod.Annotations[v1alpha1.RequestAnnotation]
	if !asks && slottedBy(pod) == nil {
		return nil
	}
	return refuse("the pod asks for GPUs, and the Binding has no annotation %s that says which: its scheduler %q must ask Divvy's extender, with ignorable: false and bindVerb, or the pod name scheduler %s",
		v1alpha1.AssignmentAnnotation, pod.Spec.SchedulerName, t.scheduler)
}

// CountedOfPod reads a pod of mode slots: what it was given, or before that what it asks. It is nothing of other pods, and of those
// that hold nothing any more.
func CountedOfPod(pod *corev1.Pod) Counted {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return Counted{}
	}
	text, ok := pod.Annotations[v1alpha1.RequestAnnotation]
	if !ok {
		return Counted{}
	}
	// What nobody can read gives its pod nothing.
	request, err := v1alpha1.ParsePodRequest(text)
	if err != nil {
		return Counted{}
	}
	assignment, err := v1alpha1.ParsePodAssignment(pod.Annotations[v1alpha1.AssignmentAnnotation])
	if err != nil || assignment.Answers(string(pod.UID), &request) != nil {
		return CountedOfRequest(&request)
	}
	c := Counted{allocated: true}
	for i := range assignment.Shares {
		share := &assignment.Shares[i]
		for _, g := range share.GPUs {
			c.given = append(c.given, given{pool: pod.Spec.NodeName, device: g.UUID, whole: share.Whole, memory: g.Memory, cores: uint64(g.Cores)})
		}
	}
	return c
}

// CountedOfRequest reads what a pod of mode slots asks.
func CountedOfRequest(request *v1alpha1.PodRequest) Counted {
	var c Counted
	for i := range request.Shares {
		s := &request.Shares[i]
		w := way{class: v1alpha1.ClassShare, count: uint64(s.GPUs), memory: s.Memory, cores: uint64(s.Cores)}
		if s.Whole {
			w.class = v1alpha1.ClassWhole
		}
		if s.Part != nil {
			w.part = *s.Part
		}
		c.asked = append(c.asked, []way{w})
	}
	return c
}

// PublishedOfNode reads what a node's agent says of its GPUs in mode slots. It is nothing where that does not read.
func PublishedOfNode(node, annotation string) Published {
	p := Published{Pool: node}
	said, err := v1alpha1.ParseNodeGPUs(annotation)
	if err != nil || len(said.GPUs) == 0 {
		return p
	}
	p.sizes = make(map[string]uint64, len(said.GPUs))
	for i := range said.GPUs {
		g := &said.GPUs[i]
		if g.Memory == 0 {
			continue
		}
		p.sizes[g.UUID] = g.Memory
		p.Sizes = append(p.Sizes, g.Memory)
		if g.Fault == "" {
			p.Inventory.Sizes = append(p.Inventory.Sizes, g.Memory)
		}
	}
	p.Inventory.Sizes = p.Inventory.sizes()
	slices.Sort(p.Sizes)
	p.Sizes = slices.Compact(p.Sizes)
	return p
}
