package extender

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

const (
	// longestWrite bounds a request that writes a Binding, and longestRead one that reads a pod. The scheduler waits for both.
	longestWrite = 10 * time.Second
	longestRead  = 3 * time.Second
)

// Steps after which a process may be stopped in tests.
const (
	StepReserved = "reserved"
	StepWritten  = "written"
)

// errUnanswered marks a binding of which nobody says whether it is done.
var errUnanswered = errors.New("the API server has not answered whether the pod is bound")

// binder writes Bindings.
type binder struct {
	core   *core
	client kubernetes.Interface // writes only while the lease is held
	now    func() time.Time
	step   func(string)
	counts *counts
	log    *slog.Logger
}

// bind reserves a place and writes the Binding with it, in one request. A place is given back once it is sure that the pod does not
// have it: the API server refused, or it says so of the pod. The error is for the scheduler, which tells it on the pod.
func (b *binder) bind(ctx context.Context, ask binding) error {
	// Who has begun to write waits for the answer, also when the scheduler does not.
	ctx = context.WithoutCancel(ctx)
	pod, err := b.pod(ctx, ask)
	if err != nil {
		return err
	}
	f, err := b.core.reserve(pod, ask.Node, b.now())
	if err != nil || f == nil {
		return err
	}
	b.step(StepReserved)
	result, err := b.write(ctx, f, pod)
	b.step(StepWritten)
	b.core.settle(f, result, b.now())
	b.counts.binds.WithLabelValues(wordOf[result]).Inc()
	if err != nil {
		b.log.WarnContext(ctx, "a pod is not bound", "pod", f.key, "node", f.node, "error", err)
	}
	return err
}

// wordOf are the results in metrics.
var wordOf = map[outcome]string{isBound: "bound", isNot: "refused", isUnknown: "unanswered"}

// pod is the one that is to be bound, as watches tell; what they do not know yet is read.
func (b *binder) pod(ctx context.Context, ask binding) (*corev1.Pod, error) {
	if pod := b.core.pod(ask.PodNamespace, ask.PodName); pod != nil && string(pod.UID) == ask.PodUID {
		return pod, nil
	}
	pod, err := b.read(ctx, ask.PodNamespace, ask.PodName)
	switch {
	case err != nil:
		return nil, err
	case pod == nil || string(pod.UID) != ask.PodUID:
		return nil, fmt.Errorf("%w: %s/%s with UID %s is gone", errRefused, ask.PodNamespace, ask.PodName, ask.PodUID)
	}
	return pod, nil
}

// read reads a pod from the API server, and not from what it remembers; nil is for one that is not there.
func (b *binder) read(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, longestRead)
	defer cancel()
	pod, err := b.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read pod %s/%s: %w", namespace, name, err)
	}
	return pod, nil
}

// write writes the Binding for the pod as it is known. A pod that has changed since is read: only what changes nothing of the
// decision is written for again.
func (b *binder) write(ctx context.Context, f *flight, pod *corev1.Pod) (outcome, error) {
	err := b.post(ctx, f, pod)
	switch {
	case err == nil:
		return isBound, nil
	case !apierrors.IsConflict(err):
		return b.failed(ctx, f, pod, err)
	}
	fresh, unread := b.read(ctx, pod.Namespace, pod.Name)
	switch {
	case unread != nil && f.doubted.IsZero():
		return isNot, fmt.Errorf("%w: %w, and then: %w", errRefused, err, unread)
	case unread != nil: // the one before may be what it conflicts with
		return isUnknown, fmt.Errorf("%w: %w, and then: %w", errUnanswered, err, unread)
	}
	switch o := f.outcomeOf(fresh); {
	case o == isBound:
		return isBound, nil
	case o == isNot && (fresh == nil || fresh.UID != pod.UID):
		return isNot, fmt.Errorf("%w: %s is gone", errRefused, f.key)
	case o == isNot:
		return isNot, fmt.Errorf("%w: another scheduler has bound %s to %s", errRefused, f.key, fresh.Spec.NodeName)
	case f.decidedOtherwise(fresh):
		return isNot, fmt.Errorf("%w: %s was changed meanwhile", errRefused, f.key)
	}
	if err := b.post(ctx, f, fresh); err != nil {
		return b.failed(ctx, f, pod, err)
	}
	return isBound, nil
}

// decidedOtherwise reports whether a pod has changed so that its place would be another one, or none.
func (f *flight) decidedOtherwise(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || len(pod.Spec.SchedulingGates) > 0 || requestOf(pod) != f.request || foreign(pod) != ""
}

// failed says what became of a Binding whose writing failed. A refusal ends it, unless one that was written before was not answered.
func (b *binder) failed(ctx context.Context, f *flight, pod *corev1.Pod, why error) (outcome, error) {
	switch {
	case !refusal(why):
		f.doubted = b.now()
	case f.doubted.IsZero():
		return isNot, fmt.Errorf("%w: %w", errRefused, why)
	}
	return b.find(ctx, f, pod, why)
}

// find reads what became of a Binding that was not answered.
func (b *binder) find(ctx context.Context, f *flight, pod *corev1.Pod, why error) (outcome, error) {
	fresh, err := b.read(ctx, pod.Namespace, pod.Name)
	if err != nil {
		return isUnknown, fmt.Errorf("%w: %w", errUnanswered, why)
	}
	o := f.outcomeOf(fresh)
	switch o {
	case isBound:
		return o, nil
	case isNot:
		return o, fmt.Errorf("%w: %w", errRefused, why)
	}
	return o, fmt.Errorf("%w: %w", errUnanswered, why)
}

// post writes the Binding for a pod of that UID and revision: whatever is changed of it meanwhile has it refused, also when the
// request is late.
func (b *binder) post(ctx context.Context, f *flight, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, longestWrite)
	defer cancel()
	return b.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: f.pod, ResourceVersion: pod.ResourceVersion,
			Annotations: map[string]string{v1alpha1.AssignmentAnnotation: f.assignment},
		},
		Target: corev1.ObjectReference{Kind: "Node", Name: f.node},
	}, metav1.CreateOptions{})
}

// refusal reports whether an error says that nothing was done, and nothing will be.
func refusal(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != 408 // a time-out may come from who stands in between
}

// look reads the pods of bindings that were not answered, or that watches do not tell of.
func (b *binder) look(ctx context.Context) {
	for _, f := range b.core.due(b.now()) {
		namespace, name := split(f.key)
		pod, err := b.read(ctx, namespace, name)
		if err != nil {
			b.log.WarnContext(ctx, "it is not known whether a pod is bound", "pod", f.key, "node", f.node, "error", err)
			continue
		}
		switch b.core.looked(f, f.outcomeOf(pod), b.now()) {
		case isNot:
			b.counts.binds.WithLabelValues("undone").Inc()
			b.log.InfoContext(ctx, "gave back the place of a pod that was not bound", "pod", f.key, "node", f.node)
		case isBound, isUnknown:
		}
	}
}
