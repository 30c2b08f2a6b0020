package demand_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

func TestShareAndWholeGPU(t *testing.T) {
	c := newCluster(t, gpusOf(0, 4, 80<<30), gpusOf(100, 2, 40<<30))
	pod := &corev1.Pod{}
	if got := c.check(t, pod, share("memory", "10Gi", "cores", "30", "slots", "1")); len(got) != 1 {
		t.Errorf("a share is %v", got)
	}
	if got := c.check(t, pod, asks(v1alpha1.ClassWhole, 4)); len(got) != 4 {
		t.Errorf("whole GPUs are %v", got)
	}
	if got := c.check(t, pod, asks(v1alpha1.ClassWhole, 5)); got != nil {
		t.Errorf("too many whole GPUs are %v", got)
	}
	if got := c.check(t, pod, share("memory", "81Gi")); got != nil {
		t.Errorf("too large a share is %v", got)
	}
}
