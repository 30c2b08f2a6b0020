package explanation

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Share is what a pod was assigned where Kubernetes counts slots.
type Share struct {
	// Name is that of the share, which is its container's.
	Name string `json:"name"`
	// Whole tells that its GPUs are whole.
	Whole bool `json:"whole,omitempty"`
	// GPUs have the node as their pool and their UUID as their name.
	GPUs []Device `json:"gpus"`
}

// slotted reports whether a pod asks for GPUs by slots.
func slotted(pod *corev1.Pod) bool { return pod.Annotations[v1alpha1.RequestAnnotation] != "" }

// sharesOf are those of a pod's assignment, in its order.
func sharesOf(pod *corev1.Pod) (all []Share) {
	for _, g := range assignedTo(pod) {
		name := oneLine(g.share.Name)
		if len(all) == 0 || all[len(all)-1].Name != name {
			all = append(all, Share{Name: name, Whole: g.share.Whole})
		}
		last := &all[len(all)-1]
		last.GPUs = append(last.GPUs, Device{
			Driver: v1alpha1.Driver, Pool: g.node, Device: oneLine(g.uuid), Memory: int64(min(g.share.Memory, math.MaxInt64)), Cores: int64(g.share.Cores),
		})
	}
	return all
}

// halt is what keeps a container from running.
type halt struct{ container, reason, message string }

func (h *halt) text() string {
	text := fmt.Sprintf("container %s: %s", h.container, h.reason)
	if h.message != "" {
		text += ": " + h.message
	}
	return oneLine(text)
}

// startReasons are those with which a container has ended that the runtime could not start.
var startReasons = []string{"StartError", "ContainerCannotRun"}

// halted is the first container that does not run, as far as the kubelet says why, nil for none. That a container is being created
// says nothing, and that it is started again after a while less than why it could not be started.
func halted(pod *corev1.Pod) *halt {
	for _, s := range statuses(pod) {
		ended := s.State.Terminated
		if w := s.State.Waiting; w != nil {
			if ended = s.LastTerminationState.Terminated; !slices.Contains([]string{"CrashLoopBackOff", "RunContainerError"}, w.Reason) {
				ended = nil
			}
		}
		if ended != nil && slices.Contains(startReasons, ended.Reason) {
			return &halt{s.Name, ended.Reason, ended.Message}
		}
		if w := s.State.Waiting; w != nil && !slices.Contains([]string{"", "ContainerCreating", "PodInitializing"}, w.Reason) {
			return &halt{s.Name, w.Reason, w.Message}
		}
	}
	return nil
}

// statuses are those of all containers, in the order in which they start.
func statuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// progress are the reasons of events by which the kubelet says how far a pod is of which no container is made yet.
var progress = []string{"Failed", "FailedCreatePodSandBox", "FailedMount", "FailedAttachVolume", "Pulling", "Pulled"}

// halts says what keeps a pod with slots from running. What the kubelet says of containers now is newer than its events.
func (r Reader) halts(ctx context.Context, pod *corev1.Pod, e *Explanation) error {
	found := halted(pod)
	switch {
	case found != nil:
		e.Reason = found.text()
	case pod.Status.Phase == corev1.PodRunning:
	default:
		said, err := r.event(ctx, pod, progress...)
		if err != nil {
			return err
		}
		e.Reason = cmp.Or(said, "its containers have not started yet")
	}
	if unserved(e.Reason) {
		e.Next = "it starts when the agent of node " + pod.Spec.NodeName + " answers and the container runtime asks it: `divvy doctor --kubernetes` says which does not"
	}
	return nil
}

// ended says how a pod has ended.
func (e *Explanation) ended(pod *corev1.Pod) {
	says := []string{string(pod.Status.Phase), pod.Status.Reason, pod.Status.Message}
	if found := halted(pod); found != nil && slotted(pod) {
		says = append(says, found.text())
	}
	e.Reason = oneLine(strings.Join(slices.DeleteFunc(says, func(s string) bool { return s == "" }), ": "))
	if unserved(e.Reason) {
		e.Next = "create it again: a pod that is never started again ends when its node's agent is away in that moment"
	}
}

// unserved reports whether a reason says that a node's agent puts no shares into containers.
func unserved(reason string) bool {
	return strings.Contains(reason, path.Base(v1alpha1.Stopper)) || strings.Contains(reason, "PreStartContainer")
}
