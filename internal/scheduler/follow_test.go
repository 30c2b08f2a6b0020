package scheduler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Whoever edits a pod that waits has that one tried again, and its gang planned anew. All others that wait come once for any number of
// edits: nobody has the scheduler try everything by changing a label again and again.
func TestEdits(t *testing.T) {
	claims := claimsByName{}
	e := engineOf(t, 1, claims)
	pods := gangOf(e, claims, 2, nil)
	id := e.Gangs.ID(pods[0])
	e.Gangs.refuse(id, refused{err: ErrRoom})
	var again []*corev1.Pod
	freed := e.freed.Load()
	before := pods[0]
	for _, value := range []string{"a", "b", "c"} {
		after := before.DeepCopy()
		after.Labels = map[string]string{"label": value}
		e.onPod(before, after, nil, func(pod *corev1.Pod) { again = append(again, pod) })
		before = after
	}
	if len(again) != 3 || again[2] != before || e.freed.Load() != freed {
		t.Errorf("after three edits %d pods are tried, and %d events may have made room", len(again), e.freed.Load()-freed)
	}
	if err := e.Gangs.refusal(id, refused{}); err != nil {
		t.Errorf("the gang is refused without a plan: %v", err)
	}
	if !e.Edited() || e.freed.Load() != freed+1 || e.Edited() {
		t.Error("others that wait are not tried once")
	}
}
