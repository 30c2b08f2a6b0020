package extender

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// What slots cannot place is refused on every node and not bound, and the reason names what of the pod says so.
func TestForeign(t *testing.T) {
	note := func(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Annotations[name] = "x" } }
	label := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Labels = map[string]string{name: "x"} }
	}
	for name, change := range map[string]func(*corev1.Pod){
		v1alpha1.GangAnnotation:         note(v1alpha1.GangAnnotation),
		v1alpha1.GangSizeAnnotation:     note(v1alpha1.GangSizeAnnotation),
		v1alpha1.GangMinimumAnnotation:  note(v1alpha1.GangMinimumAnnotation),
		v1alpha1.GangTopologyAnnotation: note(v1alpha1.GangTopologyAnnotation),
		v1alpha1.QueueLabel:             label(v1alpha1.QueueLabel),
		v1alpha1.QuotaLabel:             label(v1alpha1.QuotaLabel),
		"resource claim":                func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "x"}} },
	} {
		w := newWorld(t, nodeOf(t, "a", 1))
		pod := podOf(t, "p", 1)
		change(pod)
		w.add(pod)
		answer := w.core.filter(question{pod, []string{"a"}})
		if len(answer.fits) != 0 || len(answer.refused) != 1 || !strings.Contains(answer.refused[0].why, name) || !strings.Contains(answer.refused[0].why, "needs Kubernetes 1.36") {
			t.Errorf("%s: %+v", name, answer)
		}
		if err := w.ask("p", "a"); err == nil || !strings.Contains(err.Error(), name) || len(w.posts) != 0 {
			t.Errorf("%s: bound with %d Bindings: %v", name, len(w.posts), err)
		}
	}
}
