package extender

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Nodes are scored for pods without shares too, but for those that say where they would rather be.
func TestPlainPodsAreScored(t *testing.T) {
	w := newWorld(t, nodeOf(t, "a", 2), nodeOf(t, "b", 1))
	pod := podOf(t, "p", 1)
	pod.Annotations = nil
	sum := func(pod *corev1.Pod) (sum int) {
		t.Helper()
		all, err := w.core.prioritise(question{pod, []string{"a", "b", "c"}})
		if err != nil || len(all) != 3 || all[0].node != "a" || all[1].node != "b" || all[2] != (scored{node: "c"}) {
			t.Fatalf("%+v, %v", all, err)
		}
		return all[0].score + all[1].score
	}
	if got := sum(pod); got != 10+9 {
		t.Errorf("a plain pod has %d", got)
	}
	for name, say := range map[string]func(*corev1.PodSpec){
		"spread": func(s *corev1.PodSpec) { s.TopologySpreadConstraints = make([]corev1.TopologySpreadConstraint, 1) },
		"preferred nodes": func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: make([]corev1.PreferredSchedulingTerm, 1)}}
		},
		"apart": func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: make([]corev1.WeightedPodAffinityTerm, 1)}}
		},
	} {
		particular := pod.DeepCopy()
		say(&particular.Spec)
		if got := sum(particular); got != 0 {
			t.Errorf("%s: a pod that says where it would rather be has %d", name, got)
		}
	}
	// A pod with a share has its order whatever it says.
	share := podOf(t, "s", 1)
	share.Spec.TopologySpreadConstraints = make([]corev1.TopologySpreadConstraint, 1)
	if got := sum(share); got != 10+9 {
		t.Errorf("a pod with a share has %d", got)
	}
	if len(w.core.asked) != 0 || len(w.core.flights) != 0 {
		t.Error("something of pods that were scored alone is kept")
	}
}
