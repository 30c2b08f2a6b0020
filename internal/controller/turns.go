package controller

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// turns is a queue in which namespaces take turns, so that many pods of one hold up only each other.
type turns struct {
	waiting map[string][]string // names, by namespace
	next    []string            // namespaces that have any, whose turn it is first
	count   int
}

// inTurns goes through pods so that namespaces take turns.
func inTurns(pods []*corev1.Pod) iter.Seq[*corev1.Pod] {
	queue := turns{waiting: make(map[string][]string)}
	byName := make(map[cache.ObjectName]*corev1.Pod, len(pods))
	for _, pod := range pods {
		name := cache.MetaObjectToName(pod)
		byName[name] = pod
		queue.Push(name)
	}
	return func(yield func(*corev1.Pod) bool) {
		for queue.Len() > 0 && yield(byName[queue.Pop()]) {
		}
	}
}

// newTurns is a work queue of pods in which namespaces take turns.
func newTurns() workqueue.TypedRateLimitingInterface[cache.ObjectName] {
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[cache.ObjectName]{Queue: &turns{waiting: make(map[string][]string)}})
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstRetry, lastRetry),
		workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[cache.ObjectName]{Queue: queue}),
		})
}

// Touch implements [workqueue.Queue].
func (*turns) Touch(cache.ObjectName) {}

// Len implements [workqueue.Queue].
func (t *turns) Len() int { return t.count }

// Push implements [workqueue.Queue].
func (t *turns) Push(pod cache.ObjectName) {
	if len(t.waiting[pod.Namespace]) == 0 {
		t.next = append(t.next, pod.Namespace)
	}
	t.waiting[pod.Namespace] = append(t.waiting[pod.Namespace], pod.Name)
	t.count++
}

// Pop implements [workqueue.Queue].
func (t *turns) Pop() cache.ObjectName {
	namespace := t.next[0]
	t.next = t.next[1:]
	names := t.waiting[namespace]
	pod := cache.NewObjectName(namespace, names[0])
	t.count--
	if len(names) == 1 {
		delete(t.waiting, namespace)
		return pod
	}
	t.waiting[namespace] = names[1:]
	t.next = append(t.next, namespace)
	return pod
}
