package scheduler

import (
	"cmp"
	"container/list"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Waiting are pods for which there is no room, in lines of those that ask the same. When room may have come, the first of
// each line is tried again, and the next one after it was placed: so a line costs one trial however long it is. Anybody
// may call its methods.
type Waiting struct {
	mutex sync.Mutex
	lines map[string]*list.List // of *waiter, the first to be served in front
	// round counts the events after which there may be room, and turned has the round of each line's last turn.
	round  uint64
	turned map[string]uint64
	// order are the lines of each namespace, in the order in which their first pods are tried, and turns the namespaces.
	order map[string][]string
	turns []string
	of    map[types.UID]*waiter
}

// waiter is a pod in its line.
type waiter struct {
	pod   *corev1.Pod
	shape string
	place *list.Element
}

// mostTried is how many lines are tried at once. The others have their turn while nobody else comes up, and come first after
// the next event.
const mostTried = 16

func (w *Waiting) init() {
	w.lines, w.order, w.of = map[string]*list.List{}, map[string][]string{}, map[types.UID]*waiter{}
	w.turned = map[string]uint64{}
}

// Shape names what a unit asks: pods of one shape fit in the same places. What Kubernetes' filters read beside the demand is
// part of it, so that a pod which may be nowhere keeps nobody else waiting.
func (u *Unit) Shape() string {
	spec := &u.Pod.Spec
	filtered := corev1.PodSpec{
		NodeSelector: spec.NodeSelector, Affinity: spec.Affinity, Tolerations: spec.Tolerations, TopologySpreadConstraints: spec.TopologySpreadConstraints,
		HostNetwork: spec.HostNetwork, RuntimeClassName: spec.RuntimeClassName, PreemptionPolicy: spec.PreemptionPolicy,
	}
	for i := range spec.Volumes {
		if claim := spec.Volumes[i].PersistentVolumeClaim; claim != nil {
			filtered.Volumes = append(filtered.Volumes, spec.Volumes[i])
		}
	}
	for _, all := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range all {
			filtered.Containers = append(filtered.Containers, corev1.Container{Ports: all[i].Ports})
		}
	}
	var labels map[string]string
	if spec.Affinity != nil || len(spec.TopologySpreadConstraints) > 0 {
		labels = u.Pod.Labels
	}
	text, _ := json.Marshal(&filtered) // what was read of JSON can be written
	return fmt.Sprintf("%+v %s %s %v %q %q", *u.Demand.Pod(), u.Demand.Node(), text, labels, u.Pod.Labels[v1alpha1.QueueLabel], u.Pod.Labels[v1alpha1.QuotaLabel])
}

// Add puts a pod into the line of its shape.
func (w *Waiting) Add(pod *corev1.Pod, shape string) {
	shape = pod.Namespace + " " + shape // no namespace waits for another's pods
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if one, ok := w.of[pod.UID]; ok {
		if one.shape == shape {
			one.pod = pod
			return
		}
		w.remove(one)
	}
	line := w.lines[shape]
	if line == nil {
		line = list.New()
		w.lines[shape], w.turned[shape] = line, w.round // its first pod has just been tried
		if len(w.order[pod.Namespace]) == 0 {
			w.turns = append(w.turns, pod.Namespace)
		}
		w.order[pod.Namespace] = append(w.order[pod.Namespace], shape)
	}
	one := &waiter{pod: pod, shape: shape}
	w.of[pod.UID] = one
	for at := line.Back(); at != nil; at = at.Prev() {
		if before, ok := at.Value.(*waiter); ok && !earlier(pod, before.pod) {
			one.place = line.InsertAfter(one, at)
			return
		}
	}
	one.place = line.PushFront(one)
}

// earlier reports whether a pod is served before another: by priority, then by age.
func earlier(a, b *corev1.Pod) bool {
	return cmp.Or(-cmp.Compare(priority(a), priority(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time)) < 0
}

func priority(p *corev1.Pod) int32 { return ptr.Deref(p.Spec.Priority, 0) }

// Remove takes a pod out of its line.
func (w *Waiting) Remove(uid types.UID) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if one, ok := w.of[uid]; ok {
		w.remove(one)
	}
}

func (w *Waiting) remove(one *waiter) {
	delete(w.of, one.pod.UID)
	line := w.lines[one.shape]
	line.Remove(one.place)
	if line.Len() > 0 {
		return
	}
	delete(w.lines, one.shape)
	delete(w.turned, one.shape)
	namespace := one.pod.Namespace
	w.order[namespace] = slices.DeleteFunc(w.order[namespace], func(shape string) bool { return shape == one.shape })
	if len(w.order[namespace]) == 0 {
		delete(w.order, namespace)
		w.turns = slices.DeleteFunc(w.turns, func(turn string) bool { return turn == namespace })
	}
}

// before reports whether a pod waits that is served before another.
func (w *Waiting) before(pod *corev1.Pod) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, line := range w.lines {
		if first, ok := line.Front().Value.(*waiter); ok && earlier(first.pod, pod) {
			return true
		}
	}
	return false
}

// Has reports whether a pod is in a line.
func (w *Waiting) Has(uid types.UID) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.of[uid] != nil
}

// First are the first pods of some lines, of which all are to have a turn from now on: room may have come for any of them.
// [Waiting.More] names the others.
func (w *Waiting) First() []*corev1.Pod {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.round++
	return w.more(mostTried)
}

// More are the first pods of more lines that have had no turn since the last event, none where all have.
func (w *Waiting) More() []*corev1.Pod {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.more(mostTried)
}

// mostOrdered is how many lines are put in the order of queues after one event.
const mostOrdered = 256

// ordered are the first pods of the lines that are to be put in the order of queues after an event.
func (w *Waiting) ordered() []*corev1.Pod {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.more(mostOrdered)
}

// more takes lines whose turn it is. Namespaces take turns, and in each of them its lines, so that many lines of one
// namespace delay no other. In a namespace those that have had their turn in this round come last.
func (w *Waiting) more(most int) (first []*corev1.Pod) {
	for over := 0; len(first) < most && over < len(w.turns); {
		namespace := w.turns[0]
		w.turns = append(w.turns[1:], namespace)
		lines := w.order[namespace]
		if w.turned[lines[0]] == w.round {
			over++
			continue
		}
		over = 0
		w.turned[lines[0]] = w.round
		if one, ok := w.lines[lines[0]].Front().Value.(*waiter); ok {
			first = append(first, one.pod)
		}
		w.order[namespace] = append(lines[1:], lines[0])
	}
	return first
}

// Due reports whether lines have had no turn since the last event.
func (w *Waiting) Due() bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return slices.ContainsFunc(w.turns, func(namespace string) bool { return w.turned[w.order[namespace][0]] != w.round })
}

// Next takes a pod that was placed out of its line, and returns the one behind it, nil where there is none.
func (w *Waiting) Next(uid types.UID) *corev1.Pod {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	one, ok := w.of[uid]
	if !ok {
		return nil
	}
	line := w.lines[one.shape]
	w.remove(one)
	if line.Len() == 0 {
		return nil
	}
	if next, ok := line.Front().Value.(*waiter); ok {
		return next.pod
	}
	return nil
}

// Late reports whether room may have come since the start of this cycle, so that a pod that was refused is to be tried
// again at once.
func (e *Engine) Late() bool { return e.freed.Load() != e.seen.Load() }

// Len is how many pods wait for room.
func (w *Waiting) Len() int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return len(w.of)
}
