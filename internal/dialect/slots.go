package dialect

import (
	"slices"
	"strconv"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

// ModeSlots translates requests into counted slots and annotations, for Kubernetes 1.32 to 1.35.
const ModeSlots = "slots"

// defaultScheduler is the scheduler that the API server gives to pods that name none.
const defaultScheduler = "default-scheduler"

// slots returns the patch that makes the pod ask for slots: in each container that asks, one slot in place of what it
// asked, and what it asked in an annotation.
func (t *Translator) slots(pod *corev1.Pod, by []spoken, requests []Request, inventory Inventory) (Patch, error) {
	if err := checkSlots(pod, requests); err != nil {
		return nil, err
	}
	claims := arrange(pod, requests)
	text, err := podRequest(pod, claims).Text()
	if err != nil {
		return nil, refuse("%v", err)
	}
	p := t.patch(pod, by, nil, inventory)
	for _, r := range requests {
		p.addSlot(r.Container.of(pod), containerPath(r.Container, "resources"))
	}
	if t.replaces(pod.Spec.SchedulerName) {
		p.add(t.scheduler, "spec", "schedulerName")
	}
	p.annotate(pod, map[string]string{v1alpha1.RequestAnnotation: text})
	return p, nil
}

// checkSlots refuses pods in which a share would not hold, and what only Divvy writes.
func checkSlots(pod *corev1.Pod, requests []Request) error {
	for _, ref := range containersOf(pod) {
		if container := ref.of(pod); Privileged(container) {
			return refuse("container %q is privileged, so that no share would hold beside it: drop the privilege, or run it in another pod", container.Name)
		}
	}
	for _, r := range requests {
		if container := r.Container.of(pod); r.instance() {
			return refuse("container %q asks for a MIG instance, and the cluster has slots: have the node's agents count nvidia.com/mig-PROFILE (agent.devicePlugin) and turn off the dialect", container.Name)
		}
		if container := r.Container.of(pod); (Names{Resources: []string{v1alpha1.SlotResource}}).askedBy(container) {
			return refuse("container %q asks for %s, which Divvy counts itself: leave it out", container.Name, v1alpha1.SlotResource)
		}
	}
	for _, name := range []string{v1alpha1.RequestAnnotation, v1alpha1.AssignmentAnnotation, v1alpha1.ReplicasAnnotation} {
		if _, ok := pod.Annotations[name]; ok {
			return refuse("annotation %s is written by Divvy: leave it out", name)
		}
	}
	return nil
}

func podRequest(pod *corev1.Pod, claims []claim) v1alpha1.PodRequest {
	var all v1alpha1.PodRequest
	for _, c := range claims {
		r := &c.request
		slices.SortFunc(c.users, ContainerRef.compare)
		share := v1alpha1.ShareRequired{
			Name: r.Container.of(pod).Name, GPUs: r.Count, Whole: r.Whole, Cores: r.Cores,
			Selectors: r.Selectors, SameNUMA: r.SameNUMA && r.Count > 1,
		}
		for _, ref := range c.users {
			share.Containers = append(share.Containers, ref.of(pod).Name)
		}
		share.SetAmount(r.Memory)
		if !r.Whole {
			config := r.full()
			share.Config = &config
		}
		all.Shares = append(all.Shares, share)
	}
	return all
}

// addSlot adds one slot to a container, whose own requests are removed already. Both lists have it, as the API server
// wants of what is counted.
func (p *Patch) addSlot(container *corev1.Container, path []string) {
	lists := []corev1.ResourceList{container.Resources.Limits, container.Resources.Requests}
	for i, name := range []string{"limits", "requests"} {
		if len(lists[i]) == 0 {
			p.add(map[string]string{v1alpha1.SlotResource: "1"}, append(slices.Clone(path), name)...)
		} else {
			p.add("1", append(slices.Clone(path), name, v1alpha1.SlotResource)...)
		}
	}
}

func containerPath(ref ContainerRef, more ...string) []string {
	kind := "containers"
	if ref.Init {
		kind = "initContainers"
	}
	return append([]string{"spec", kind, strconv.Itoa(ref.Index)}, more...)
}

// annotate adds annotations in the order of their names.
func (p *Patch) annotate(pod *corev1.Pod, notes map[string]string) {
	if len(pod.Annotations) == 0 {
		p.add(notes, "metadata", "annotations")
		return
	}
	for _, name := range sortedKeys(notes) {
		p.add(notes[name], "metadata", "annotations", name)
	}
}
