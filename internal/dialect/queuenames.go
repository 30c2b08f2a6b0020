package dialect

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/queue"
)

// queueName is a queue that a pod names in another system's words, and where.
type queueName struct{ where, queue string }

// queued returns the labels that a pod of Divvy's scheduler gets for what it says of its queue in the words of the dialects that
// are turned on. What the pod says in Divvy's own labels stays. An error wraps [ErrRefused].
func (t *Translator) queued(pod *corev1.Pod, tree *queue.Tree) (labels map[string]string, warnings []string, err error) {
	if tree == nil || !t.places(pod) {
		return nil, nil, nil
	}
	labels = make(map[string]string)
	name := pod.Labels[v1alpha1.QueueLabel]
	if name == "" {
		if name, warnings, err = t.foreignQueue(pod, tree); err != nil {
			return nil, nil, err
		}
		if name != "" {
			labels[v1alpha1.QueueLabel] = name
		}
	}
	// Outside all queues nothing is guaranteed, so the pod would never start.
	if pod.Labels[v1alpha1.QuotaLabel] != "" || name == "" && tree.Of(pod.Namespace) == queue.Outside {
		return labels, warnings, nil
	}
	for _, d := range t.dialects {
		by, ok := d.(quoted)
		if !ok {
			continue
		}
		if quota := by.quota(pod); quota != "" {
			if quota != v1alpha1.QuotaBorrowing {
				labels[v1alpha1.QuotaLabel] = string(quota)
			}
			break
		}
	}
	return labels, warnings, nil
}

// foreignQueue is the first queue that is there of those that a pod names in other systems' words, empty for none. An error wraps
// [ErrRefused].
func (t *Translator) foreignQueue(pod *corev1.Pod, tree *queue.Tree) (name string, warnings []string, err error) {
	var missing []queueName
	for _, n := range t.namedQueues(pod) {
		if _, there := tree.Find(n.queue); !there {
			missing = append(missing, n)
			continue
		}
		if !tree.Admits(n.queue, pod.Namespace) {
			return "", nil, refuseQueue(pod, tree, n.where, n.queue)
		}
		return n.queue, nil, nil
	}
	if len(missing) > 0 {
		warnings = append(warnings, fmt.Sprintf("%s: there is no queue %s: the pod %s", missing[0].where, missing[0].queue, instead(pod, tree)))
	}
	return "", warnings, nil
}

// instead says in which queue a pod is that names none.
func instead(pod *corev1.Pod, tree *queue.Tree) string {
	if n := tree.Of(pod.Namespace); n != queue.Outside {
		return "is in queue " + tree.Name(n)
	}
	return "is in no queue"
}

// namedQueues are the queues that a pod names, in the order of the dialects. A text that is no name of a queue is none.
func (t *Translator) namedQueues(pod *corev1.Pod) (all []queueName) {
	for _, d := range t.dialects {
		names := d.Owns()
		for _, in := range []struct {
			what   string
			keys   []string
			values map[string]string
		}{{"annotation", names.QueueAnnotations, pod.Annotations}, {"label", names.QueueLabels, pod.Labels}} {
			for _, key := range in.keys {
				if name := in.values[key]; v1alpha1.ValidQueueName(name) {
					all = append(all, queueName{in.what + " " + key, name})
				}
			}
		}
	}
	return all
}
