// Package explanation says why a pod of a cluster waits, or where it is. It only reads.
package explanation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/plaintext"
)

// ErrNoPod is returned for a pod that does not exist.
var ErrNoPod = errors.New("no such pod")

// State is how far a pod has come.
type State string

// The states.
const (
	// Waiting is of a pod without a node.
	Waiting State = "waiting"
	// Bound is of a pod that has a node and has not ended.
	Bound State = "bound"
	// Ended is of a pod whose containers have ended for good.
	Ended State = "ended"
	// Deleted is of a pod that is being deleted.
	Deleted State = "deleted"
)

// Explanation is what there is to say about a pod.
type Explanation struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	State     State  `json:"state"`
	// Since is when it came into this state, as far as that is known.
	Since *time.Time `json:"since,omitempty"`
	// Scheduler is the name that the pod gives.
	Scheduler string `json:"scheduler"`
	// Node is that of a pod that is bound or has ended.
	Node string `json:"node,omitempty"`
	// Reason is one line: why the pod waits, or what keeps a bound one from running.
	Reason string `json:"reason,omitempty"`
	// Next is one line: what it waits for, or what to do.
	Next string `json:"next,omitempty"`
	// Queue is where a pod that waits stands in its queue, nil without one, and for those who may not read queues.
	Queue  *QueuePlace `json:"queue,omitempty"`
	Gang   *Gang       `json:"gang,omitempty"`
	Claims []Claim     `json:"claims,omitempty"`
	// Shares are what a pod with a node has where Kubernetes counts slots.
	Shares []Share `json:"shares,omitempty"`
}

// Reader reads a cluster.
type Reader struct {
	Client kubernetes.Interface
	// Objects reads the objects of other systems that describe gangs.
	Objects dynamic.Interface
}

// Pod explains a pod. The error is [ErrNoPod] if there is none.
func (r Reader) Pod(ctx context.Context, namespace, name string) (*Explanation, error) {
	pod, err := r.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("find pod %s in namespace %s: %w", name, namespace, ErrNoPod)
	}
	if err != nil {
		return nil, fmt.Errorf("read pod %s of namespace %s: %w", name, namespace, err)
	}
	e := &Explanation{Namespace: namespace, Pod: name, Scheduler: oneLine(pod.Spec.SchedulerName), Node: pod.Spec.NodeName}
	e.State, e.Since = stateOf(pod)
	e.Shares = sharesOf(pod)
	if e.Claims, err = r.claims(ctx, pod); err != nil {
		return nil, err
	}
	if e.Gang, err = r.gang(ctx, pod); err != nil {
		return nil, err
	}
	if g := e.Gang; g != nil {
		g.Name, g.Topology, g.Fault = oneLine(g.Name), oneLine(g.Topology), oneLine(g.Fault)
	}
	switch e.State {
	case Waiting:
		if e.Queue, err = r.place(ctx, pod); err == nil {
			err = r.waits(ctx, pod, e)
		}
	case Bound:
		err = r.stuck(ctx, pod, e)
	case Ended:
		e.ended(pod)
	case Deleted:
		if pod.Spec.NodeName != "" {
			e.Next = "its node ends it: look at the agent of node " + pod.Spec.NodeName + " if that takes long"
		}
	}
	return e, err
}

func stateOf(pod *corev1.Pod) (State, *time.Time) {
	switch {
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return Ended, nil
	case pod.DeletionTimestamp != nil:
		return Deleted, &pod.DeletionTimestamp.Time
	case pod.Spec.NodeName == "":
		return Waiting, &pod.CreationTimestamp.Time
	}
	if c := scheduled(pod); c != nil && c.Status == corev1.ConditionTrue {
		return Bound, &c.LastTransitionTime.Time
	}
	return Bound, nil
}

// scheduled is the condition by which schedulers speak of a pod, nil if none has.
func scheduled(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodScheduled {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// waits says why a pod waits.
func (r Reader) waits(ctx context.Context, pod *corev1.Pod, e *Explanation) error {
	if e.condition(pod); len(pod.Spec.SchedulingGates) > 0 {
		return nil
	}
	if e.Scheduler != v1alpha1.SchedulerName {
		// What the controller found out says more than that claims cannot be allocated.
		said, err := r.event(ctx, pod, Reasons...)
		if said != "" {
			e.Reason = said
		}
		if said != "" || err != nil {
			return err
		}
	}
	if e.Next == "" && !slotted(pod) {
		e.Next = e.needs()
	}
	return nil
}

// Reasons are the reasons of events by which Divvy's controller says why a pod waits.
var Reasons = []string{"NoShareFits", "NoClaimTemplate"}

// condition says what the pod itself tells of why it waits.
func (e *Explanation) condition(pod *corev1.Pod) {
	if gates := pod.Spec.SchedulingGates; len(gates) > 0 {
		names := make([]string, len(gates))
		for i := range gates {
			names[i] = gates[i].Name
		}
		e.Reason = "no scheduler may place it: it has the scheduling gates " + strings.Join(names, ", ")
		e.Next = "whoever set the gates removes them, such as a queue that admits pods"
		return
	}
	switch condition := scheduled(pod); {
	case condition == nil:
		e.Reason = "scheduler " + e.Scheduler + " has not looked at it yet"
		e.Next = "if that stays so, check that a scheduler of this name runs"
		if e.Scheduler == v1alpha1.SchedulerName {
			e.Next = "if that stays so, check that it runs: kubectl get pods -A -l app.kubernetes.io/component=scheduler"
		}
	case condition.Message == "" && condition.Reason == "":
		e.Reason = "scheduler " + e.Scheduler + " gives no reason"
	case condition.Message == "":
		e.Reason = oneLine(condition.Reason)
	default:
		e.Reason = oneLine(condition.Message)
	}
}

// needs says what a pod of Divvy's scheduler waits for beside room.
func (e *Explanation) needs() string {
	if e.Gang != nil && e.Gang.Missing > 0 {
		return fmt.Sprintf("%s more of gang %s: nothing is held for a gang that is not complete", plural(e.Gang.Missing, "pod"), e.Gang.Name)
	}
	for i := range e.Claims {
		if e.Claims[i].State == Absent {
			return "claim " + e.Claims[i].Name + ": create it, or create the pod again"
		}
	}
	return ""
}

// stuck says what keeps a bound pod from running.
func (r Reader) stuck(ctx context.Context, pod *corev1.Pod, e *Explanation) error {
	if e.out(); e.Reason != "" {
		return nil
	}
	if slotted(pod) {
		return r.halts(ctx, pod, e)
	}
	if pod.Status.Phase == corev1.PodRunning {
		return nil
	}
	said, err := r.event(ctx, pod, "PrepareFailed", "FailedPrepareDynamicResources")
	if e.Reason = said; said == "" {
		e.Reason = "its containers have not started yet"
	}
	return err
}

// out says that claims of a pod are suspended, and what brings them back.
func (e *Explanation) out() {
	for i := range e.Claims {
		switch c := &e.Claims[i]; c.State {
		case Suspended:
			e.Reason = "it is suspended for " + c.For + ": its programs wait, its memory is in the node's host memory"
			e.Next = "it resumes by itself, when its turn has come and its GPUs have room"
			return
		case Leaving:
			e.Reason = "it is being suspended for " + c.For
		case Resuming:
			e.Reason = "its memory comes back to its GPUs"
		}
	}
}

// event is the newest event of a pod with one of these reasons, or empty.
func (r Reader) event(ctx context.Context, pod *corev1.Pod, reasons ...string) (string, error) {
	list, err := r.Client.EventsV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "regarding.name=" + pod.Name})
	if err != nil {
		return "", fmt.Errorf("read the events of pod %s: %w", pod.Name, err)
	}
	var text string
	var newest time.Time
	for i := range list.Items {
		event := &list.Items[i]
		at := timeOf(event)
		if event.Regarding.UID == pod.UID && slices.Contains(reasons, event.Reason) && (text == "" || at.After(newest)) {
			text, newest = oneLine(event.Note), at
		}
	}
	return text, nil
}

// timeOf is when an event happened last.
func timeOf(event *eventsv1.Event) time.Time {
	at := event.EventTime.Time
	if event.Series != nil {
		at = event.Series.LastObservedTime.Time
	}
	if at.IsZero() {
		at = event.DeprecatedLastTimestamp.Time
	}
	return at
}

// longest bounds what is shown of a text that others wrote, in characters.
const longest = 2000

// oneLine makes what others wrote fit for a terminal: one line, nothing that is no letter, no end of it.
func oneLine(text string) string {
	return plaintext.Line(strings.Join(strings.Fields(text), " "), longest)
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
