package webhook

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestLimitRangesOfTheNamespace has a LimitRange bound pods of its own namespace as long as it exists.
func TestLimitRangesOfTheNamespace(t *testing.T) {
	w := newWorld(t, "{hami: {}}")
	refused := func() bool {
		t.Helper()
		_, err := w.judge.mutatePod(context.Background(), podRequest(t, "{spec: {containers: [{name: a, resources: {limits: {nvidia.com/gpu: 1}}}]}}"))
		if err != nil && !strings.Contains(err.Error(), `LimitRange "team" allows 8192 of nvidia.com/gpumem, and container a asks for 16384`) {
			t.Error(err)
		}
		return err != nil
	}
	const team = "{metadata: {name: team, namespace: NAMESPACE}, spec: {limits: [{type: Container, max: {nvidia.com/gpumem: 8192}}]}}"
	w.know(t, w.ranges, &corev1.LimitRange{}, strings.Replace(team, "NAMESPACE", "other", 1))
	if refused() {
		t.Error("another namespace's LimitRange bounds the pod")
	}
	w.know(t, w.ranges, &corev1.LimitRange{}, strings.Replace(team, "NAMESPACE", "space", 1))
	if !refused() {
		t.Error("the namespace's LimitRange does not bound the pod")
	}
	if err := w.ranges.Replace(nil, ""); err != nil || refused() {
		t.Errorf("a LimitRange that is gone bounds the pod: %v", err)
	}
}
