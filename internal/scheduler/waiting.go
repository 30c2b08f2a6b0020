package scheduler

import (
	"cmp"
	"container/list"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Waiting are pods for which there is no room, in lines of those that ask the same. When room may have come, the first of
// each line is tried again, and the next one after it was placed: so a line costs one trial however long it is. Anybody
// may call its methods.
type Waiting struct {
	mutex sync.Mutex
	lines map[string]*list.List // of *waiter, the first to be served in front
	order []string              // the lines, in the order in which their first pods are tried
	of    map[types.UID]*waiter
}

// waiter is a pod in its line.
type waiter struct {
	pod   *corev1.Pod
	shape string
	place *list.Element
}

// mostTried is how many lines are tried after one event. The others have their turn after the next.
const mostTried = 16

func (w *Waiting) init() {
	w.lines, w.of = map[string]*list.List{}, map[types.UID]*waiter{}
}

// Shape names what a unit asks: pods of one shape fit in the same places.
func (u *Unit) Shape() string {
	spec := &u.Pod.Spec
	return fmt.Sprintf("%+v %v %v %v %s", *u.Demand.Pod(), spec.NodeSelector, spec.Affinity, spec.Tolerations, u.Demand.Node())
}

// Add puts a pod into the line of its shape.
func (w *Waiting) Add(pod *corev1.Pod, shape string) {
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
		w.lines[shape] = line
		w.order = append(w.order, shape)
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
	priority := func(p *corev1.Pod) int32 {
		if p.Spec.Priority == nil {
			return 0
		}
		return *p.Spec.Priority
	}
	return cmp.Or(-cmp.Compare(priority(a), priority(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time)) < 0
}

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
	for i, shape := range w.order {
		if shape == one.shape {
			w.order = append(w.order[:i:i], w.order[i+1:]...)
			return
		}
	}
}

// Has reports whether a pod is in a line.
func (w *Waiting) Has(uid types.UID) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.of[uid] != nil
}

// First are the first pods of the lines whose turn it is.
func (w *Waiting) First() []*corev1.Pod {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	n := min(mostTried, len(w.order))
	turn := w.order[:n]
	var first []*corev1.Pod
	for _, shape := range turn {
		if one, ok := w.lines[shape].Front().Value.(*waiter); ok {
			first = append(first, one.pod)
		}
	}
	w.order = append(append([]string(nil), w.order[n:]...), turn...)
	return first
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
