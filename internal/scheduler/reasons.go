package scheduler

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons writes on pods why they wait: when that changes, in the order in which it was said, and never more than the last
// reason of a pod. It has a client of its own, so that no binding waits for it. Anybody may call its methods.
type Reasons struct {
	client kubernetes.Interface
	record func(pod *corev1.Pod, reason string)

	mutex   sync.Mutex
	waits   map[types.UID]*saying // not written yet
	order   []types.UID
	written map[types.UID]string
	more    chan struct{}
}

// saying is what is to be written on a pod.
type saying struct {
	pod       *corev1.Pod
	condition *corev1.PodCondition
	// nominated replaces the node on which room is made for the pod, nil to leave it.
	nominated *string
	// due is when it is written, if the pod still waits then.
	due time.Time
}

// reasonDelay spares the reasons of pods that wait for a moment only, such as for the last member of their gang.
const reasonDelay = 100 * time.Millisecond

// reasonWriters is how many reasons are written side by side.
const reasonWriters = 4

// NewReasons makes a writer. record tells the user the same as an event.
func NewReasons(client kubernetes.Interface, record func(pod *corev1.Pod, reason string)) *Reasons {
	return &Reasons{client: client, record: record, waits: map[types.UID]*saying{}, written: map[types.UID]string{}, more: make(chan struct{}, reasonWriters)}
}

// Run writes until the context ends.
func (r *Reasons) Run(ctx context.Context) {
	for range reasonWriters {
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-r.more:
				}
				for uid, due := r.next(); !due.IsZero(); uid, due = r.next() {
					if r.wait(ctx, due) {
						r.write(ctx, r.take(uid))
					}
				}
			}
		}()
	}
}

// Say has a condition written on a pod, unless it was written already.
func (r *Reasons) Say(pod *corev1.Pod, condition *corev1.PodCondition, nominated *string) {
	if nominated != nil && *nominated == pod.Status.NominatedNodeName {
		nominated = nil
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	text := textOf(condition)
	if nominated == nil && (r.waits[pod.UID] == nil && r.written[pod.UID] == text || r.waits[pod.UID] != nil && textOf(r.waits[pod.UID].condition) == text) {
		return
	}
	if r.waits[pod.UID] == nil {
		r.order = append(r.order, pod.UID)
	}
	due := time.Now().Add(reasonDelay)
	if before := r.waits[pod.UID]; before != nil {
		due = before.due
	}
	r.waits[pod.UID] = &saying{pod, condition, nominated, due}
	select {
	case r.more <- struct{}{}:
	default: // all writers know already
	}
}

// Forget ends what is known of a pod.
func (r *Reasons) Forget(uid types.UID) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.waits, uid)
	delete(r.written, uid)
}

func textOf(c *corev1.PodCondition) string {
	if c == nil {
		return ""
	}
	return c.Reason + ": " + c.Message
}

// next is the pod whose reason is to be written next, and when; the zero time where there is none.
func (r *Reasons) next() (types.UID, time.Time) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for len(r.order) > 0 {
		uid := r.order[0]
		r.order = r.order[1:]
		if one := r.waits[uid]; one != nil {
			return uid, one.due
		}
	}
	return "", time.Time{}
}

// wait waits until a time. It reports false if the context ends before.
func (r *Reasons) wait(ctx context.Context, until time.Time) bool {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// take is the last that was said of a pod, nil if it does not wait any more.
func (r *Reasons) take(uid types.UID) *saying {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	one := r.waits[uid]
	if one != nil {
		delete(r.waits, uid)
		r.written[uid] = textOf(one.condition)
	}
	return one
}

// write patches one condition: conditions of a pod's status are merged by their type.
func (r *Reasons) write(ctx context.Context, s *saying) {
	if s == nil {
		return
	}
	status := map[string]any{}
	if c := s.condition; c != nil && !said(s.pod, c) {
		one := *c
		one.LastTransitionTime = metav1.Now()
		for i := range s.pod.Status.Conditions {
			if before := &s.pod.Status.Conditions[i]; before.Type == c.Type && before.Status == c.Status {
				one.LastTransitionTime = before.LastTransitionTime
			}
		}
		status["conditions"] = []corev1.PodCondition{one}
		r.record(s.pod, c.Message)
	}
	if s.nominated != nil {
		status["nominatedNodeName"] = *s.nominated
	}
	if len(status) == 0 {
		return
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": s.pod.UID}, "status": status})
	if err == nil {
		_, err = r.client.CoreV1().Pods(s.pod.Namespace).Patch(ctx, s.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil {
		r.mutex.Lock()
		delete(r.written, s.pod.UID) // so that it is written when it is said again
		r.mutex.Unlock()
		klog.FromContext(ctx).V(2).Info("Reason not written", "pod", klog.KObj(s.pod), "err", err)
	}
}

// said reports whether a pod has a condition already.
func said(pod *corev1.Pod, c *corev1.PodCondition) bool {
	for i := range pod.Status.Conditions {
		if have := &pod.Status.Conditions[i]; have.Type == c.Type {
			return have.Status == c.Status && textOf(have) == textOf(c)
		}
	}
	return false
}
