package cluster

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// WaitPod watches a pod until a condition on it holds. An error of the condition
// ends the wait. The pod need not exist yet; that it is deleted ends the wait.
func (c *Cluster) WaitPod(ctx context.Context, namespace, name, what string, holds func(*corev1.Pod) (bool, error)) (*corev1.Pod, error) {
	var last *corev1.Pod
	err := Wait(ctx, c.client.CoreV1().RESTClient(), "pods", namespace, name, func(pod *corev1.Pod) (bool, error) {
		last = pod
		if pod == nil {
			return false, errors.New("it was deleted")
		}
		return holds(pod)
	})
	if err != nil {
		err = fmt.Errorf("wait until pod %s/%s: %s: %w%s", namespace, name, what, err, c.explain(context.WithoutCancel(ctx), last))
	}
	return last, err
}

// WaitRunning waits until all containers of a pod are ready.
func (c *Cluster) WaitRunning(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return c.WaitPod(ctx, namespace, name, "it runs", func(pod *corev1.Pod) (bool, error) {
		if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
			return false, fmt.Errorf("it has ended: %s", pod.Status.Phase)
		}
		return PodReady(pod), nil
	})
}

// WaitEnded waits until all containers of a pod have ended, and tells how.
func (c *Cluster) WaitEnded(ctx context.Context, namespace, name string) (corev1.PodPhase, error) {
	pod, err := c.WaitPod(ctx, namespace, name, "it has ended", func(pod *corev1.Pod) (bool, error) {
		return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded, nil
	})
	if err != nil {
		return "", err
	}
	return pod.Status.Phase, nil
}

// PodReady tells whether all containers of a pod are ready.
func PodReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// WaitGone waits until a pod does not exist.
func (c *Cluster) WaitGone(ctx context.Context, namespace, name string) error {
	return Gone[corev1.Pod](ctx, c.client.CoreV1().RESTClient(), "pods", namespace, name)
}

// Gone waits until one object does not exist.
func Gone[T any, P interface {
	*T
	runtime.Object
}](ctx context.Context, client rest.Interface, resource, namespace, name string) error {
	// It may go before the first list, and then no event tells of it.
	absent := func(store cache.Store) (bool, error) { return len(store.ListKeys()) == 0, nil }
	err := wait(ctx, client, resource, namespace, name, absent, func(object P) (bool, error) { return object == nil, nil })
	if err != nil {
		return fmt.Errorf("wait until %s %s/%s is gone: %w", resource, namespace, name, err)
	}
	return nil
}

// WaitNode watches a node until a condition on it holds.
func (c *Cluster) WaitNode(ctx context.Context, name, what string, holds func(*corev1.Node) (bool, error)) error {
	err := Wait(ctx, c.client.CoreV1().RESTClient(), "nodes", "", name, func(node *corev1.Node) (bool, error) {
		if node == nil {
			return false, errors.New("it was deleted")
		}
		return holds(node)
	})
	if err != nil {
		return fmt.Errorf("wait until node %s: %s: %w", name, what, err)
	}
	return nil
}

// Wait watches one object, or with an empty name all of a kind, until a
// condition holds on one that is new or changed. It is called with nil for one
// that was deleted. It goes on while the API is away.
func Wait[T any, P interface {
	*T
	runtime.Object
}](ctx context.Context, client rest.Interface, resource, namespace, name string, holds func(P) (bool, error)) error {
	return wait(ctx, client, resource, namespace, name, nil, holds)
}

// wait is Wait with a condition on all that the first list has.
func wait[T any, P interface {
	*T
	runtime.Object
}](ctx context.Context, client rest.Interface, resource, namespace, name string, listed watchtools.PreconditionFunc, holds func(P) (bool, error)) error {
	selector := fields.Everything()
	if name != "" {
		selector = fields.OneTermEqualSelector("metadata.name", name)
	}
	list := cache.NewListWatchFromClient(client, resource, namespace, selector)
	_, err := watchtools.UntilWithSync(ctx, list, P(new(T)), listed, func(event watch.Event) (bool, error) {
		switch event.Type {
		case watch.Error:
			return false, apierrors.FromObject(event.Object)
		case watch.Deleted:
			return holds(nil)
		}
		object, ok := event.Object.(P)
		if !ok {
			return false, fmt.Errorf("watch %s: got %T", resource, event.Object)
		}
		return holds(object)
	})
	return err
}

// explain says for an error what became of a pod: its state and its events.
func (c *Cluster) explain(ctx context.Context, pod *corev1.Pod) string {
	if pod == nil {
		return ": it was never seen"
	}
	text := "\n  phase " + string(pod.Status.Phase)
	for _, condition := range pod.Status.Conditions {
		if condition.Status != corev1.ConditionTrue && condition.Message != "" {
			text += fmt.Sprintf("\n  %s: %s", condition.Type, condition.Message)
		}
	}
	events, err := c.Events(ctx, pod.Namespace, pod.Name)
	if err != nil {
		return text + "\n  " + err.Error()
	}
	for _, event := range events {
		text += fmt.Sprintf("\n  event %s: %s", event.Reason, event.Message)
	}
	return text
}

// Events lists the events about an object of that name, in the order in which
// they are stored.
func (c *Cluster) Events(ctx context.Context, namespace, name string) ([]corev1.Event, error) {
	list, err := c.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.name", name).String(),
	})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// WaitEvent waits for an event about an object of that name.
func (c *Cluster) WaitEvent(ctx context.Context, namespace, name string, matches func(*corev1.Event) bool) (*corev1.Event, error) {
	var found *corev1.Event
	err := Wait(ctx, c.client.CoreV1().RESTClient(), "events", namespace, "", func(event *corev1.Event) (bool, error) {
		if event == nil || event.InvolvedObject.Name != name || !matches(event) {
			return false, nil
		}
		found = event
		return true, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for an event about %s/%s: %w", namespace, name, err)
	}
	return found, nil
}
