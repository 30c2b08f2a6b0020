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
// reason of a pod. Pods that were tried come before those that are held back. It has a client of its own, so that no binding
// waits for it. Anybody may call its methods.
type Reasons struct {
	client kubernetes.Interface
	record func(pod *corev1.Pod, reason string)

	mutex sync.Mutex
	waits map[types.UID]*saying // not written yet
	// order are the pods that were tried, held those that are held back. A pod that is not in waits, or in the other list, is
	// left out when its turn comes.
	order, held []types.UID
	// heldNext is when the next reason of a pod that is held back may be written.
	heldNext time.Time
	written  map[types.UID]string
	more     chan struct{}
}

// saying is what is to be written on a pod.
type saying struct {
	pod       *corev1.Pod
	condition *corev1.PodCondition
	// nominated replaces the node on which room is made for the pod, nil to leave it.
	nominated *string
	// due is when it is written, if the pod still waits then.
	due time.Time
	// held tells that the pod is held back.
	held bool
}

const (
	// reasonDelay spares the reasons of pods that wait for a moment only.
	reasonDelay = 100 * time.Millisecond
	// heldDelay spares those of members that wait for others which are just being made.
	heldDelay = time.Second
	// heldPause is the time between two reasons of pods that are held back: they take no more than half of the client's rate,
	// and leave its burst to those that were tried.
	heldPause = 10 * time.Millisecond
	// reasonWriters is how many reasons are written side by side.
	reasonWriters = 4
)

// NewReasons makes a writer. record tells the user the same as an event.
func NewReasons(client kubernetes.Interface, record func(pod *corev1.Pod, reason string)) *Reasons {
	return &Reasons{client: client, record: record, waits: map[types.UID]*saying{}, written: map[types.UID]string{}, more: make(chan struct{}, reasonWriters)}
}

// Run writes until the context ends.
func (r *Reasons) Run(ctx context.Context) {
	for range reasonWriters {
		go func() {
			for ctx.Err() == nil {
				one, due := r.next(time.Now())
				if one != nil {
					r.write(ctx, one)
					continue
				}
				r.wait(ctx, due)
			}
		}()
	}
}

// Say has a condition written on a pod that was tried, unless it was written already.
func (r *Reasons) Say(pod *corev1.Pod, condition *corev1.PodCondition, nominated *string) {
	if nominated != nil && *nominated == pod.Status.NominatedNodeName {
		nominated = nil
	}
	r.say(&saying{pod: pod, condition: condition, nominated: nominated, due: time.Now().Add(reasonDelay)})
}

// SayHeld has a condition written on a pod that is held back, unless it was written already.
func (r *Reasons) SayHeld(pod *corev1.Pod, condition *corev1.PodCondition) {
	r.say(&saying{pod: pod, condition: condition, due: time.Now().Add(heldDelay), held: true})
}

func (r *Reasons) say(one *saying) {
	uid, text := one.pod.UID, textOf(one.condition)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if _, known := r.written[uid]; !known && said(one.pod, one.condition) {
		r.written[uid] = text // by the scheduler before this one; later, what is known of the pod may be older than what was written
	}
	before := r.waits[uid]
	if one.nominated == nil && (before == nil && r.written[uid] == text || before != nil && before.held == one.held && textOf(before.condition) == text) {
		return
	}
	switch {
	case before != nil && before.held == one.held:
		one.due = before.due
	case one.held:
		r.held = append(r.held, uid)
	default:
		r.order = append(r.order, uid)
	}
	r.waits[uid] = one
	select {
	case r.more <- struct{}{}:
	default: // all writers know already
	}
}

// Withdraw ends what is not written yet of a pod that was held back.
func (r *Reasons) Withdraw(uid types.UID) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if one := r.waits[uid]; one != nil && one.held {
		delete(r.waits, uid)
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

// next takes what is to be written at a time. Where there is nothing, it is nil, and due is when there may be; the zero time is
// when more is said.
func (r *Reasons) next(now time.Time) (one *saying, due time.Time) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if one := r.first(&r.order, false); one != nil {
		if !one.due.After(now) {
			return r.take(&r.order), time.Time{}
		}
		due = one.due
	}
	if one := r.first(&r.held, true); one != nil {
		at := one.due
		if r.heldNext.After(at) {
			at = r.heldNext
		}
		if !at.After(now) {
			r.heldNext = now.Add(heldPause)
			return r.take(&r.held), time.Time{}
		}
		if due.IsZero() || at.Before(due) {
			due = at
		}
	}
	return nil, due
}

// first is the first of a list that is still to be written.
func (r *Reasons) first(list *[]types.UID, held bool) *saying {
	for len(*list) > 0 {
		if one := r.waits[(*list)[0]]; one != nil && one.held == held {
			return one
		}
		*list = (*list)[1:]
	}
	return nil
}

// take takes the first of a list, which is to be written.
func (r *Reasons) take(list *[]types.UID) *saying {
	uid := (*list)[0]
	*list = (*list)[1:]
	one := r.waits[uid]
	delete(r.waits, uid)
	r.written[uid] = textOf(one.condition)
	return one
}

// wait waits until a time, if it is one, or until more is said or the context ends.
func (r *Reasons) wait(ctx context.Context, until time.Time) {
	var over <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
	case <-r.more:
	case <-ctx.Done():
	}
}

// write patches one condition: conditions of a pod's status are merged by their type.
func (r *Reasons) write(ctx context.Context, s *saying) {
	status := map[string]any{}
	if c := s.condition; c != nil {
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
	if c == nil {
		return false
	}
	for i := range pod.Status.Conditions {
		if have := &pod.Status.Conditions[i]; have.Type == c.Type {
			return have.Status == c.Status && textOf(have) == textOf(c)
		}
	}
	return false
}
