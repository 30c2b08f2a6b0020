package program

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Members that no filter tells apart share a key, whatever their names, claims, ordinals and arguments; others have their own.
func TestTrialsShare(t *testing.T) {
	member := func(i int, change func(p *corev1.Pod)) *corev1.Pod {
		p := gangOf(t, "train", 8, i, 10)
		p.Labels = map[string]string{"app": "train", "batch.kubernetes.io/job-completion-index": fmt.Sprint(i)}
		p.Spec.Hostname = fmt.Sprint("train-", i)
		p.Spec.Containers[0].Args = []string{fmt.Sprint("--rank=", i)}
		if change != nil {
			change(p)
		}
		return p
	}
	one := &trials{}
	first := one.key(member(0, nil))
	if first == "" || first != one.key(member(1, nil)) {
		t.Error("members that differ in name, claim and ordinal do not share a run")
	}
	if labels := (&trials{labels: true}); labels.key(member(0, nil)) == labels.key(member(1, nil)) {
		t.Error("members share a run though other pods keep away from labels")
	}
	for name, change := range map[string]func(p *corev1.Pod){
		"node selector": func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"a": "b"} },
		"label":         func(p *corev1.Pod) { p.Labels["app"] = "other" },
		"ports": func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80, ContainerPort: 80}}
		},
		"volume":    func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "data"}} },
		"affinity":  func(p *corev1.Pod) { p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}} },
		"namespace": func(p *corev1.Pod) { p.Namespace = "other" },
	} {
		if one.key(member(1, change)) == first {
			t.Errorf("members of another %s share a run", name)
		}
	}
	apart := func(p *corev1.Pod) { p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}} }
	if one.key(member(0, apart)) == one.key(member(1, apart)) {
		t.Error("members that keep away from labels share a run though their labels differ")
	}
}

// What was refused once is not planned again beside as many members, nor together in another order; it is beside fewer,
// elsewhere and for other members.
func TestDenials(t *testing.T) {
	d := denials{{key: "one", node: "n0", here: 2, why: "because", others: []string{"two"}}}
	for _, test := range []struct {
		key, node string
		here      int
		there     string
		denied    bool
	}{
		{"one", "n0", 2, "", true}, {"one", "n0", 3, "", true}, {"one", "n0", 1, "two", false}, {"one", "n1", 2, "two", false},
		{"two", "n0", 2, "two", false}, {"two", "n0", 1, "one", true}, {"two", "n1", 1, "one", false}, {"three", "n0", 9, "one", false},
	} {
		got := d.of(test.key, test.node, test.here, func(key string) bool { return key == test.there }) != ""
		if got != test.denied {
			t.Errorf("%+v: denied is %v", test, got)
		}
	}
}
