package scheduler

import (
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// Only the last reason of a pod is written, once, and none of a pod that waits no more.
func TestReasons(t *testing.T) {
	stays, goes := &corev1.Pod{}, &corev1.Pod{}
	stays.Namespace, stays.Name, stays.UID = "default", "stays", "1"
	goes.Namespace, goes.Name, goes.UID = "default", "goes", "2"
	client := fake.NewClientset(stays, goes)
	var mutex sync.Mutex
	var told []string
	heard := make(chan struct{}, 8)
	r := NewReasons(client, func(pod *corev1.Pod, reason string) {
		mutex.Lock()
		defer mutex.Unlock()
		told = append(told, pod.Name+": "+reason)
		heard <- struct{}{}
	})
	because := func(text string) *corev1.PodCondition {
		return &corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: text}
	}
	r.Say(goes, because("no room"), nil)
	r.Say(stays, because("first"), nil)
	r.Say(stays, because("second"), nil)
	r.Forget(goes.UID)
	r.Run(t.Context())
	select {
	case <-heard:
	case <-time.After(time.Minute):
		t.Fatal("nothing is told")
	}
	r.Say(stays, because("second"), nil)
	mutex.Lock()
	defer mutex.Unlock()
	if strings.Join(told, "; ") != "stays: second" {
		t.Errorf("told: %v", told)
	}
	if len(r.order) != 0 {
		t.Errorf("what was written is written again")
	}
}

// Reasons of pods that were tried overtake those of pods that are held back, which are written later, one after the other, and
// not at all once their pods are let on.
func TestReasonsOfPodsThatAreHeldBack(t *testing.T) {
	r := NewReasons(nil, nil)
	because := func(text string) *corev1.PodCondition {
		return &corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: text}
	}
	now := time.Now()
	for _, name := range []string{"a", "b", "c", "d"} {
		r.SayHeld(waits(name, 0), because("waits for members"))
	}
	if one, due := r.next(now); one != nil || due.Sub(now) < heldDelay/2 {
		t.Fatalf("a pod that is held back says so at once: %v, %v", one, due)
	}
	r.Withdraw("b")
	r.Say(waits("e", 0), because("no room"), nil)
	r.Say(waits("c", 0), because("no room"), nil)
	r.Withdraw("c") // which was tried since
	now = now.Add(time.Hour)
	var order []string
	for range 10 {
		one, due := r.next(now)
		switch {
		case one != nil:
			order = append(order, one.pod.Name+" "+one.condition.Message)
		case due.IsZero():
			order = append(order, "end")
		case due.Sub(now) > heldPause:
			t.Fatalf("the next is due in %v", due.Sub(now))
		default:
			order = append(order, "pause")
			now = due
		}
	}
	if got := strings.Join(order[:6], "; "); got != "e no room; c no room; a waits for members; pause; d waits for members; end" {
		t.Error(got)
	}
	r.SayHeld(waits("a", 0), because("waits for members"))
	if len(r.waits)+len(r.held) != 0 {
		t.Error("what was written is written again")
	}
}
