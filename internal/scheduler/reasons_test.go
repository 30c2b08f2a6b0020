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
	case <-time.After(20 * time.Second):
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
